"""`Network` checks itself, and loads no TensorFlow to do so."""

import dataclasses
import math

import pytest

from tests.processes import run_case
from tfscale import ClusterError, CommunicationError, Network, PowerSGD
from tfscale.gradients.network import choose_network

BAD = {
    "communication": ("gloo", None, 2, ["ring"], ""),
    "bytes_per_pack": (-1, 1.5, "1MB", True, math.nan),
    "compression": ("bf8", "", None, 2, PowerSGD, ["bf16"]),
    "double_buffering": (None, 0, 1, "yes"),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_bad_fields(name, value):
    with pytest.raises(CommunicationError, match=rf"`{name}` must be (.|\n)*Received: {name}="):
        Network(**{name: value})


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "soon", True])
def test_bad_timeout(value):
    with pytest.raises(ClusterError, match=r"`timeout_s` must be(.|\n)*Received: timeout_s="):
        Network(timeout_s=value)


def test_frozen_and_equal():
    one = Network("ring", 0, "bf16", True, 600)
    assert one == dataclasses.replace(Network(), **dataclasses.asdict(one))
    assert one != Network()
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.compression = "none"


def test_whole_or_by_fields():
    whole = Network(timeout_s=5)
    assert choose_network(whole) is whole
    assert choose_network(None) == choose_network(None, communication="auto") == Network()
    assert choose_network(whole, communication="auto", timeout_s=None) is whole
    with pytest.raises(CommunicationError, match=r"Received: communication='ring', timeout_s=5 and a network"):
        choose_network(whole, communication="ring", bytes_per_pack=None, timeout_s=5)
    with pytest.raises(CommunicationError, match="must be one of"):
        choose_network(whole, communication="gloo")


def test_loads_no_tensorflow():
    assert run_case("tests.cases_flags:network", fresh=True) is False

import pytest

from tfscale import ClusterError
from tfscale.cluster.deadline import read_timeout_s


@pytest.mark.parametrize(
    ("given", "environ", "seconds"),
    [
        (None, {}, 120.0),
        (None, {"TFSCALE_TIMEOUT_S": "2.5"}, 2.5),
        (7, {"TFSCALE_TIMEOUT_S": "2.5"}, 7.0),
        (0, {}, 0.0),
        (None, {"TFSCALE_TIMEOUT_S": "0"}, 0.0),
    ],
)
def test_seconds(given, environ, seconds):
    assert read_timeout_s(given, environ) == seconds


@pytest.mark.parametrize("given", [-1, "soon", float("nan"), float("inf"), True, [1], ""])
def test_no_seconds(given):
    with pytest.raises(ClusterError, match="`timeout_s` must be a number of seconds"):
        read_timeout_s(given, {})


def test_variable_is_named():
    with pytest.raises(ClusterError, match="Received: TFSCALE_TIMEOUT_S='2 min'"):
        read_timeout_s(None, {"TFSCALE_TIMEOUT_S": "2 min"})

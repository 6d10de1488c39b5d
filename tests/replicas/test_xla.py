"""When does XLA compile a replica's pass?"""

import types

import pytest

from tests.processes import run_case
from tfscale.replicas import xla
from tfscale.replicas.xla import CollectiveInsideXlaError, refuse_collectives_inside_xla, would_compile


def _layers(*support):
    return [types.SimpleNamespace(supports_jit=each) for each in support]


@pytest.mark.parametrize(
    ("support", "devices", "expected"),
    [
        ((True, True), ("CPU", "GPU"), True),
        ((True, False), ("CPU", "GPU"), False),
        ((True, True), ("CPU",), False),
        ((True,), ("CPU", "CPU"), False),
        ((), ("GPU",), True),
        ((), (), False),
    ],
)
def test_auto_decides_as_on_one_device(support, devices, expected):
    assert would_compile(_layers(*support), devices) is expected


def test_collectives_are_refused_only_while_compiling():
    refuse_collectives_inside_xla()
    with xla._COMPILING.raised(), pytest.raises(CollectiveInsideXlaError):
        refuse_collectives_inside_xla()
    refuse_collectives_inside_xla()


def test_a_pass_that_communicates_is_compiled_in_pieces(tmp_path):
    flags = {"XLA_FLAGS": f"--xla_dump_to={tmp_path} --xla_dump_hlo_pass_re=^$"}
    run_case("tests.replicas.cases_xla:fit_synchronized", args=(2,), env=flags)
    compiled = {path.name.split(".")[1] for path in tmp_path.glob("module_*.before_optimizations.txt")}
    # Before, between and after the two layers that exchange statistics, forward and backward.
    assert len(compiled) >= 3, compiled
    assert all(name.startswith("cluster_") for name in compiled)

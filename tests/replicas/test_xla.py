"""When does XLA compile a replica's pass?"""

import types

import pytest

from tests.processes import run_case, run_workers
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


def _compiled(path):
    return {each.name.split(".")[1] for each in path.glob("module_*.before_optimizations.txt")}


def _dumping(path):
    return {"XLA_FLAGS": f"--xla_dump_to={path} --xla_dump_hlo_pass_re=^$"}


def test_a_pass_that_communicates_is_compiled_in_pieces(tmp_path):
    run_workers("tests.replicas.cases_xla:fit_synchronized", 2, env=_dumping(tmp_path))
    # Before, between and after the two layers that exchange statistics, forward and backward.
    compiled = _compiled(tmp_path)
    assert len(compiled) >= 3, compiled
    assert all(name.startswith("cluster_") for name in compiled)


def test_it_is_not_where_a_process_has_several_cpus(tmp_path):
    """TensorFlow would put parts of a piece on two of them, for some models, which is an error."""
    run_case("tests.replicas.cases_xla:fit_synchronized", args=(2,), env=_dumping(tmp_path))
    assert not _compiled(tmp_path)


@pytest.mark.parametrize(("num_replicas", "micro_batch"), [(2, None), (3, None), (2, 2)])
def test_rows_of_positions_are_added_up_as_without_it(num_replicas, micro_batch):
    assert run_case("tests.replicas.cases_xla:positions", args=(num_replicas, micro_batch)) < 1e-5

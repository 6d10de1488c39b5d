"""A package may add a source of clusters by an entry point."""

import importlib
import sys

import pytest

from tests.cluster.refusal import assert_refused
from tests.cluster.test_slurm import STEP
from tfscale import resolve_cluster

MODULE = """
from tfscale import ClusterError, ClusterSpec

def read(environ):
    if "MINE" not in environ:
        return None
    return ClusterSpec(workers=("x:1", "y:1"), rank=int(environ["MINE"]), source="my engine")

def text(environ):
    return "x:1"

def refuse(environ):
    raise ClusterError("A rule.\\nReceived: nothing. Do it.")
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Returns what puts a package with these entry points where Python finds it."""

    def put(*lines):
        (tmp_path / "tfscale_test_engine.py").write_text(MODULE)
        info = tmp_path / "my_engine-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-engine\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("\n".join(["[tfscale.cluster_sources]", *lines, ""]))
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()

    yield put
    sys.modules.pop("tfscale_test_engine", None)


def test_source_of_another_package(install):
    assert resolve_cluster({"MINE": "1"}).source == "this machine"
    install("mine = tfscale_test_engine:read")
    spec = resolve_cluster({"MINE": "1"})
    assert (spec.source, spec.workers, spec.rank) == ("my engine", ("x:1", "y:1"), 1)
    # Before every built-in source but TF_CONFIG; where it knows nothing, they are asked.
    assert resolve_cluster({**STEP, "MINE": "1"}).source == "my engine"
    assert resolve_cluster(STEP).source == "Slurm"
    assert resolve_cluster({}).source == "this machine"
    assert resolve_cluster({"MINE": "1", "TFSCALE_ALONE": "1"}).source == "this machine"
    one = '{"cluster": {"worker": ["z:1"]}, "task": {"type": "worker", "index": 0}}'
    assert resolve_cluster({"MINE": "1", "TF_CONFIG": one}).source == "TF_CONFIG"


def test_sources_are_asked_in_the_order_of_their_names(install):
    install("b = tfscale_test_engine:refuse", "a = tfscale_test_engine:read")
    assert resolve_cluster({"MINE": "0"}).source == "my engine"
    assert_refused({}, "A rule.")


@pytest.mark.parametrize(
    ("entry_point", "parts"),
    [
        ("mine = tfscale_test_engine:none", ["AttributeError", "'mine', tfscale_test_engine:none of my-engine"]),
        ("mine = tfscale_test_engine_that_is_not_there:read", ["ModuleNotFoundError"]),
        ("mine = tfscale_test_engine:read", ["ValueError"]),
        ("mine = tfscale_test_engine:text", ["must return a `tfscale.ClusterSpec` or None", "'x:1'"]),
    ],
)
def test_broken_source_is_named(install, entry_point, parts):
    install(entry_point)
    assert_refused({"MINE": "one"}, *parts, "Repair or uninstall it", "TFSCALE_ALONE=1")

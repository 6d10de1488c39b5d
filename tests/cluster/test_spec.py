import dataclasses
import json

import pytest

from tfscale import ClusterError, ClusterSpec


@pytest.mark.parametrize(
    ("workers", "rank", "num_workers", "is_chief"),
    [
        (("a:1",), 0, 1, True),
        (("a:1", "b:65535"), 0, 2, True),
        (("a:1", "a:2"), 1, 2, False),
        (("10.0.0.1:2222", "[::1]:2222", "host-1.example:2222"), 2, 3, False),
    ],
)
def test_facts(workers, rank, num_workers, is_chief):
    spec = ClusterSpec(workers, rank)
    assert (spec.num_workers, spec.is_chief) == (num_workers, is_chief)


@pytest.mark.parametrize(
    ("workers", "rank", "rule"),
    [
        ((), 0, "at least one address"),
        (["a:1"], 0, "must be a tuple"),
        ("a:1", 0, "must be a tuple"),
        (None, 0, "must be a tuple"),
        (("a:1",), 1, "from 0 to 0"),
        (("a:1", "b:1"), -1, "from 0 to 1"),
        (("a:1", "b:1"), True, "from 0 to 1"),
        (("a:1", "b:1"), 1.0, "from 0 to 1"),
        (("a:1", "b:1"), "1", "from 0 to 1"),
        (("a:1", "b:1", "a:1"), 0, "an address of its own"),
        (("a:1", ""), 0, "address of worker 1"),
        (("a:1", "b"), 0, "address of worker 1"),
        (("a:1", "b:"), 0, "address of worker 1"),
        (("a:1", ":1"), 0, "address of worker 1"),
        (("a:1", "b:0"), 0, "port from 1 to 65535"),
        (("a:1", "b:65536"), 0, "port from 1 to 65535"),
        (("a:1", "b:-1"), 0, "address of worker 1"),
        (("a:1", "b:1\n"), 0, "address of worker 1"),
        (("a:1", "b:٣"), 0, "address of worker 1"),
        (("a:1", " b:1"), 0, "address of worker 1"),
        (("a:1", "::1:2222"), 0, "address of worker 1"),
        (("a:1", "grpc://b:1"), 0, "address of worker 1"),
        (("a:1", "b:1,c:1"), 0, "address of worker 1"),
        (("a:1", None), 0, "address of worker 1"),
        (("a:1", 2222), 0, "address of worker 1"),
    ],
)
def test_malformed(workers, rank, rule):
    with pytest.raises(ClusterError) as caught:
        ClusterSpec(workers, rank, source="a test")
    stated, _, received = str(caught.value).partition("\nReceived: ")
    assert rule in stated
    assert "from a test. " in received


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ClusterSpec(("a:1",), 0).rank = 1


def test_to_tf_config():
    assert json.loads(ClusterSpec(("a:1", "b:1"), 1).to_tf_config()) == {
        "cluster": {"worker": ["a:1", "b:1"]},
        "task": {"type": "worker", "index": 1},
    }

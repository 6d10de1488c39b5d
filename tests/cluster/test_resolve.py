import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cluster.refusal import assert_refused
from tfscale import ClusterError, ClusterSpec, resolve_cluster

TWO = {"worker": ["a:1", "b:1"]}
CHIEF_AND_TWO = {"chief": ["c:1"], **TWO}


def tf_config(cluster, type_, index, **others):
    config = {"cluster": cluster, "task": {"type": type_, "index": index}, **others}
    return {"TF_CONFIG": json.dumps(config)}


@pytest.mark.parametrize("environ", [{}, {"PATH": "/bin"}, {"tf_config": "not ours"}, {"WORLD_SIZE": "1"}])
def test_this_machine(environ):
    spec = resolve_cluster(environ)
    assert (spec.num_workers, spec.rank, spec.is_chief) == (1, 0, True)
    assert spec.source == "this machine"


@pytest.mark.parametrize(
    ("environ", "workers", "rank"),
    [
        (tf_config({"worker": ["a:1"]}, "worker", 0), ("a:1",), 0),
        (tf_config(TWO, "worker", 0), ("a:1", "b:1"), 0),
        (tf_config(TWO, "worker", 1), ("a:1", "b:1"), 1),
        (tf_config({"chief": ["c:1"]}, "chief", 0), ("c:1",), 0),
        (tf_config(CHIEF_AND_TWO, "chief", 0), ("c:1", "a:1", "b:1"), 0),
        (tf_config(CHIEF_AND_TWO, "worker", 0), ("c:1", "a:1", "b:1"), 1),
        (tf_config(CHIEF_AND_TWO, "worker", 1), ("c:1", "a:1", "b:1"), 2),
        (tf_config({**TWO, "chief": ["c:1"]}, "worker", 0), ("c:1", "a:1", "b:1"), 1),
        (tf_config(TWO, "worker", 1, environment="cloud", job={}), ("a:1", "b:1"), 1),
    ],
)
def test_tf_config(environ, workers, rank):
    assert resolve_cluster(environ) == ClusterSpec(workers, rank, source="TF_CONFIG")


@pytest.mark.parametrize("type_", ["evaluator", "ps"])
def test_task_that_does_not_train_is_told_so(type_):
    with pytest.raises(ClusterError, match="parameter servers and evaluators take no part"):
        resolve_cluster(tf_config(TWO, type_, 0))


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("", "must be JSON"),
        ("worker 0 of 2", "must be JSON"),
        ("{'cluster': {}}", "must be JSON"),
        ("[" * 100_000, "must be JSON"),
        ("null", "must be a JSON object"),
        ("[]", "must be a JSON object"),
        ("3", "must be a JSON object"),
        ("{}", "under 'cluster'"),
        ('{"task": {"type": "worker", "index": 0}}', "under 'cluster'"),
        ('{"cluster": ["a:1"], "task": {}}', "under 'cluster'"),
        ('{"cluster": null, "task": {}}', "under 'cluster'"),
        ('{"cluster": {"worker": ["a:1"]}}', "under 'task'"),
        ('{"cluster": {"worker": ["a:1"]}, "task": 0}', "under 'task'"),
    ],
)
def test_tf_config_is_no_description(value, rule):
    assert_refused({"TF_CONFIG": value}, rule)


@pytest.mark.parametrize(
    ("cluster", "rule"),
    [
        ({}, "must list the workers"),
        ({"worker": []}, "at least one address"),
        ({"worker": "a:1"}, "at least one address"),
        ({"worker": {"0": "a:1"}}, "at least one address"),
        ({"worker": None}, "at least one address"),
        ({"worker": ["a:1"], "chief": []}, "at least one address"),
        ({"worker": ["a:1"], "chief": ["b:1", "c:1"]}, "one chief at most"),
        ({"worker": ["a:1"], "ps": ["b:1"]}, "must be 'worker' and, if any, 'chief'"),
        ({"worker": ["a:1"], "evaluator": ["b:1"]}, "must be 'worker' and, if any, 'chief'"),
        ({"master": ["a:1"]}, "must be 'worker' and, if any, 'chief'"),
        ({"worker": ["a:1"], "": ["b:1"]}, "must be 'worker' and, if any, 'chief'"),
        ({"worker": ["a"]}, "'host:port'"),
        ({"worker": [""]}, "'host:port'"),
        ({"worker": [1]}, "'host:port'"),
        ({"worker": ["a:1", "a:1"]}, "an address of its own"),
        ({"worker": ["a:1"], "chief": ["a:1"]}, "an address of its own"),
    ],
)
def test_cluster_is_malformed(cluster, rule):
    assert_refused(tf_config(cluster, "worker", 0), rule)


@pytest.mark.parametrize(
    ("cluster", "task", "rule"),
    [
        (TWO, {}, "type in `TF_CONFIG` must be one of the jobs"),
        (TWO, {"index": 0}, "type in `TF_CONFIG` must be one of the jobs"),
        (TWO, {"type": None, "index": 0}, "type in `TF_CONFIG` must be one of the jobs"),
        (TWO, {"type": "", "index": 0}, "type in `TF_CONFIG` must be one of the jobs"),
        (TWO, {"type": ["worker"], "index": 0}, "type in `TF_CONFIG` must be one of the jobs"),
        (TWO, {"type": "chief", "index": 0}, "type in `TF_CONFIG` must be one of the jobs"),
        (TWO, {"type": "ps", "index": 0}, "type in `TF_CONFIG` must be one of the jobs"),
        (TWO, {"type": "evaluator", "index": 0}, "type in `TF_CONFIG` must be one of the jobs"),
        (TWO, {"type": "worker"}, "from 0 to 1"),
        (TWO, {"type": "worker", "index": None}, "from 0 to 1"),
        (TWO, {"type": "worker", "index": "0"}, "from 0 to 1"),
        (TWO, {"type": "worker", "index": 0.0}, "from 0 to 1"),
        (TWO, {"type": "worker", "index": True}, "from 0 to 1"),
        (TWO, {"type": "worker", "index": -1}, "from 0 to 1"),
        (TWO, {"type": "worker", "index": 2}, "from 0 to 1"),
        # One less would be the chief's rank, one more a rank that exists: both are of another job.
        (CHIEF_AND_TWO, {"type": "worker", "index": -1}, "from 0 to 1"),
        (CHIEF_AND_TWO, {"type": "worker", "index": 2}, "from 0 to 1"),
        (CHIEF_AND_TWO, {"type": "chief", "index": 1}, "from 0 to 0"),
    ],
)
def test_task_is_malformed(cluster, task, rule):
    assert_refused({"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}, rule)


def test_environment_is_read_when_called(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", tf_config(TWO, "worker", 1)["TF_CONFIG"])
    assert resolve_cluster().rank == 1
    assert resolve_cluster({}).num_workers == 1


def test_reading_does_not_write():
    before = dict(os.environ)
    environ = tf_config(TWO, "worker", 1)
    resolve_cluster(environ)
    assert environ == tf_config(TWO, "worker", 1)
    assert dict(os.environ) == before


# Anything at all, and what is nearly right: a description with one part replaced.
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
addresses = st.lists(st.sampled_from(["a:1", "b:1", "[::1]:1", "c", "", 1]), max_size=4) | anything
jobs = st.dictionaries(st.sampled_from(["worker", "chief", "ps", ""]), addresses, max_size=3)
tasks = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["worker", "chief", "evaluator"]) | anything,
        "index": st.integers(-2, 4) | anything,
    },
)
nearly_right = st.fixed_dictionaries({}, optional={"cluster": jobs | anything, "task": tasks | anything})


@settings(deadline=None)
@given(st.text() | anything.map(json.dumps) | nearly_right.map(json.dumps))
def test_any_environment_is_a_valid_cluster_or_refused(value):
    try:
        spec = resolve_cluster({"TF_CONFIG": value})
    except ClusterError as error:
        assert "\nReceived: " in str(error)  # noqa: PT017
    else:
        assert 0 <= spec.rank < spec.num_workers == len(set(spec.workers))
        assert resolve_cluster({"TF_CONFIG": spec.to_tf_config()}) == spec

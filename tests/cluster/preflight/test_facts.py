import keras
import pytest

from tfscale.cluster.preflight.facts import (
    describe_workers,
    find_disagreements,
    gather_facts,
    installed_version,
)

ARGUMENTS = "script arguments"


@pytest.mark.parametrize(
    ("first", "second", "are_equal"),
    [
        (["train.py", "--lr=1"], ["/elsewhere/train.py", "--lr=1"], True),
        (["train.py", "--lr=1"], ["train.py", "--lr=2"], False),
        (["train.py", "a b"], ["train.py", "a", "b"], False),
        (["train.py", "a", "b"], ["train.py", "b", "a"], False),
        (["train.py"], [], True),
        (["train.py", "\udcff"], ["train.py", ""], False),
    ],
)
def test_arguments(first, second, are_equal):
    told = [gather_facts(argv)[ARGUMENTS] for argv in (first, second)]
    assert (told[0] == told[1]) == are_equal


def test_arguments_stay_secret():
    assert "hunter2" not in str(gather_facts(["train.py", "--password=hunter2"]))


def test_versions_are_those_that_are_imported():
    assert installed_version("Keras") == keras.__version__


@pytest.mark.parametrize(
    ("own", "other", "found"),
    [
        ({}, {}, []),
        ({"a": "1"}, {"a": "1"}, []),
        ({"a": "1", "b": "1"}, {"b": "2"}, [("a", "not given", "1"), ("b", "2", "1")]),
        ({}, {"a": "1"}, [("a", "1", "not given")]),
    ],
)
def test_disagreements(own, other, found):
    assert find_disagreements(own, other) == found


def test_long_lists_of_workers_stay_short_and_differ():
    workers = [f"host-{rank}:2222" for rank in range(1000)]
    texts = {describe_workers(workers), describe_workers([*workers[:-1], "host-x:2222"])}
    assert len(texts) == 2
    assert max(map(len, texts)) < 400

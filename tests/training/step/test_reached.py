"""What the code of a step keeps outside of the model: all replicas begin with the same, and one's is left."""

import functools
import sys
import types

import keras
import numpy as np
import pytest

from tests.processes import run_case
from tests.training.step import cases_reached as cases
from tfscale.training.step.holders import Attributes, Cells, ClassAttributes, Defaults, Draws, Globals
from tfscale.training.step.reached import reached_from

CASES = "tests.training.step.cases_reached"


def _values(thing):
    return {name: value for holder in reached_from([thing]).holders for name, value in holder.values().items()}


@pytest.mark.parametrize(
    ("name", "holder", "kept"),
    [
        ("by_global", Globals, "STEPS"),
        ("by_dict", Globals, "COUNTS"),
        ("by_list", Globals, "SEEN"),
        ("by_class", ClassAttributes, "steps"),
        ("by_object", Attributes, "count"),
        ("by_default", Defaults, "default 0"),
        ("by_attribute", Attributes, "count"),
        ("by_closure", Cells, "count"),
        ("drawn by NumPy", Draws, "place"),
        ("drawn by a generator", Draws, "place"),
    ],
)
def test_what_code_changes_is_found_and_put_back(name, holder, kept):
    count = cases.COUNTERS[name]
    with cases.from_the_start():
        count()
        found = [each for each in reached_from([count]).holders if kept in each.values() and type(each) is holder]
        before = [each.values()[kept] for each in found]
        assert [each.title(kept) for each in found]
        if not isinstance(before[0], list | dict):
            first = count()
            for each, value in zip(found, before, strict=True):
                each.put(kept, value)
            assert count() == first


def test_methods_partials_and_wrapped_functions_lead_on():
    class Step:
        @property
        def number(self):
            return cases.METER.update()

        @classmethod
        def of_class(cls):
            return cases.by_global()

        @functools.cached_property
        def once(self):
            return cases.by_list()

        def run(self, scale):
            return scale * self.number

    found = _values(functools.partial(Step().run, 2.0))
    assert {"count", "STEPS", "SEEN"} <= found.keys()

    @functools.wraps(cases.by_dict)
    def wrapped():
        return cases.by_dict()

    assert "COUNTS" in _values(wrapped)


def test_modules_of_the_users_own_are_scripts():
    module = types.ModuleType("settings")
    module.__file__ = "/home/me/settings.py"
    module.step, module.table = 1, {"a": 1}
    space = {"settings": module, "np": np}
    exec("def count():\n    settings.step += 1\n    settings.table['a'] += np.sqrt(1.0)", space)
    assert _values(space["count"]) == {"step": 1, "table": {"a": 1}}


def test_what_is_installed_or_only_read_is_left_alone():
    rows = [1.0, 2.0]

    def reads():
        return sum(rows) + len(sys.path) + cases.BATCH + keras.backend.epsilon()

    assert _values(reads) == {}
    assert _values(pytest.raises) == {}
    assert _values(keras.layers.Dense(1)).keys() <= vars(keras.layers.Dense(1)).keys()


def test_iterators_that_nothing_called_takes_from_are_left_alone():
    class Trainer:
        def __init__(self):
            self.batches = iter([1, 2])

        def train(self):
            return [self.step(each) for each in self.batches]

        def step(self, rows):
            return rows + self.more()

        def more(self):
            return next(self.more_batches)

    trainer = Trainer()
    assert reached_from([trainer.step]).iterators == []
    trainer.more_batches = iter([3])
    assert reached_from([trainer.step]).iterators == ["'more_batches' of 'Trainer'"]


@pytest.fixture(scope="module", params=[True, False], ids=["eager", "graph"])
def trained(request):
    return run_case(f"{CASES}:equal", args=(request.param,))


@pytest.mark.parametrize("name", cases.COUNTERS)
def test_steps_of_fit_are_as_on_one_device(trained, name):
    (ours, counted), (expected, expected_counts) = trained[name]
    for own, other in zip(ours, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6)
    assert counted == expected_counts


@pytest.fixture(scope="module")
def refused():
    return run_case(f"{CASES}:refused")


@pytest.mark.parametrize("name", cases.ITERATORS)
def test_iterators_in_a_step_are_refused(refused, name):
    message, steps = refused[name]
    assert "takes from an iterator" in message
    assert "Received: " in message
    assert steps == 0


def test_what_begins_late_is_seen_before_it_is_made(refused):
    message, steps = refused["late"]
    assert "The steps before it did not show it, and were those of one replica." in message
    assert steps == 4


@pytest.fixture(scope="module", params=[True, False], ids=["eager", "graph"])
def looped(request):
    return request.param, run_case(f"{CASES}:loops", args=(request.param,))


@pytest.mark.parametrize("name", cases.COUNTERS)
def test_functions_of_loops_are_as_on_one_device(looped, name):
    factor, counts = looped[1][name]
    with cases.from_the_start():
        assert factor == pytest.approx(cases.COUNTERS[name](), rel=1e-5)
        cases.COUNTERS[name]()
        assert counts == [cases.STEPS, cases.COUNTS["steps"], cases.METER.count, len(cases.SEEN)]


def test_what_loops_are_refused(looped):
    eager, found = looped
    assert "must not take from an iterator" in found["a cycle"]
    assert "must keep what it keeps in variables" in found["queue"]
    assert "keeps in Python must be the same on all replicas" in found["keeps"]
    assert "TENSORS" in found["keeps"]
    if eager:
        assert "must not take from an iterator" in found["a data set"]
        assert "keeps in Python must be the same on all replicas" in found["notes"]
        assert "of several such sums no quotient" in found["late"]
    else:
        assert "an iterator of a data set ('IteratorGetNext" in found["a data set"]

"""What a model of the user's keeps in Python.

That all replicas begin a step with the same: the contract's table "numbers".
"""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.processes import run_case
from tfscale.training.step.kept_values import restorer
from tfscale.training.step.own_numbers import OwnNumbers

CASES = "tests.training.step.cases_own_numbers"


class Counting(keras.Model):
    of_class = 1

    def __init__(self):
        super().__init__()
        self.inner = keras.layers.Dense(2)
        self.steps = 3
        self.is_ready = False
        self.seen, self.kept, self.blocks = [1], {"a": [2.0]}, []
        self._hidden = [0]

    def change(self):
        self.steps += 1
        self.of_class += 1
        self.made, self.is_ready, self.inner.units = 5.0, True, 7
        self.seen.append(2)
        self.kept["a"].append(3.0)
        self.kept["b"] = "text"
        self._hidden[0] = 1


def test_what_was_changed_is_put_back():
    model = Counting()
    numbers = OwnNumbers(model)
    found = {name.split(" of ")[0]: value.tolist() for name, value in numbers.read().items()}
    expected = {"Counting.of_class": 1, "Counting.steps": 3, "Counting.is_ready": 0}
    assert expected.items() <= found.items()
    held = {name.split(" of ")[0]: value.tolist() for name, value in numbers.read_containers().items()}
    assert {"Counting.kept": [2.0], "Counting.seen": [1.0]}.items() <= held.items()
    assert not any("units" in name or "built" in name for name in found)
    seen, of_a = model.seen, model.kept["a"]
    with numbers.unchanged():
        model.change()
    assert (model.steps, model.of_class, hasattr(model, "made"), model.is_ready) == (3, 1, False, False)
    assert (model.seen, model.kept, model._hidden) == ([1], {"a": [2.0]}, [0])
    # Whoever holds them besides sees the same.
    assert model.seen is seen
    assert model.kept["a"] is of_a
    # What Keras's own layers hold stays.
    assert model.inner.units == 7


def test_what_was_made_stays_and_what_says_so():
    model = Counting()
    with OwnNumbers(model).unchanged():
        model.change()
        model.blocks.append(keras.layers.Dense(1))
    assert (model.is_ready, len(model.blocks)) == (True, 1)
    assert (model.steps, model.seen) == (3, [1])


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ([1, [2], {3}], lambda value: (value.append(4), value[1].clear(), value[2].add(5))),
        ({"a": 1, "b": {"c": [1]}}, lambda value: (value.pop("a"), value["b"]["c"].append(2))),
        (collections.deque([1, 2], maxlen=2), lambda value: value.append(3)),
        (np.zeros(3), lambda value: value.__setitem__(1, 4.0)),
        ([np.arange(2)], lambda value: value[0].__imul__(3)),
        ([tf.constant(1.0)], lambda value: value.insert(0, tf.constant(2.0))),
        ({1}, lambda value: value.add(2)),
        ([], lambda value: value.append(value)),
    ],
)
def test_what_is_in_a_container(value, change):
    before, put_back = repr(value), restorer(value)
    change(value)
    assert repr(value) != before
    put_back()
    assert repr(value) == before


@pytest.fixture(scope="module")
def said():
    return run_case(f"{CASES}:refused")


@pytest.mark.parametrize(
    ("name", "begins", "has"),
    [
        ("an own loss that counts", "ParityError: The first step", "NotesLosses.last"),
        ("the branch is taken", "ModelError: A step met a layer, or made one", "branch of Python"),
        ("frozen, other choices", "ModelError: What is frozen was changed", "sequential/dense"),
    ],
)
def test_what_is_refused_by_name(said, name, begins, has):
    assert said[name].startswith(begins)
    assert has in said[name]
    assert "Received:" in said[name]


def test_what_is_not_refused(said):
    assert said["noted before an error"] == "([], 1.0)"
    # Of three steps on two replicas, looked at twice.
    assert said["noted"] == "3"
    assert "keeps in Python" in said["warning"]
    assert "NotesLosses.noted" in said["warning"]
    names = (
        "a list of own losses",
        "the branch is not taken",
        "not frozen",
        "frozen, as it was compiled",
        "frozen, compiled again",
    )
    assert [said[name] for name in names] == 5 * ["no error"]

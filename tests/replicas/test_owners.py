"""What is known of somebody else's object has one owner, prints, and goes with it."""

import copy
import gc
import threading
import weakref

import keras
import numpy as np
import pytest

from tfscale import DataParallel
from tfscale.callbacks import NoiseScale
from tfscale.gradients.route import GradientRoute
from tfscale.replicas.owners import Fact, PreparedModel, ReplicaGroup

ROWS = Fact[int](PreparedModel, "rows")
SHOWN = Fact[list](PreparedModel, "shown", lambda values: f"{len(values)} values")
RATE = Fact[float](GradientRoute, "rate")
OF_GROUP = Fact[object](ReplicaGroup, "of_group")


class Thing:
    """Something that can be known of, as a strategy."""


def test_nothing_is_known_before():
    model = keras.Sequential()
    assert ROWS.of(model) is None
    assert ROWS.of(model, 7) == 7
    assert model not in ROWS
    assert ROWS.forget(model) is None
    assert PreparedModel.find(model) is None


def test_what_was_set_is_known_of_that_object_only():
    one, other = keras.Sequential(), keras.Sequential()
    assert ROWS.set(one, 3) == 3
    assert (ROWS.of(one), ROWS.of(one, 7), ROWS.of(other), one in ROWS, other in ROWS) == (3, 3, None, True, False)
    assert ROWS.ensure(one, 4) == 3
    assert ROWS.ensure(other, 4) == 4
    assert sorted(ROWS.everywhere()) == [3, 4]
    assert ROWS.forget(one) == 3
    assert one not in ROWS


def test_owners_are_apart():
    thing = Thing()
    OF_GROUP.set(thing, 1)
    assert PreparedModel.find(thing) is None


def test_prints_what_is_known_by_name():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, name="inner")], name="small")
    assert repr(PreparedModel.of(model)) == "PreparedModel of Sequential 'small': nothing is known"
    ROWS.set(model, 3)
    SHOWN.set(model, [1, 2])
    assert repr(PreparedModel.of(model)) == "PreparedModel of Sequential 'small': rows=3, shown=2 values"
    # What is known of its layers, too.
    ROWS.set(model.layers[0], 5)
    assert repr(PreparedModel.of(model)).splitlines()[1:] == ["  PreparedModel of Dense 'inner': rows=5"]


def test_prints_a_value_without_words_of_its_own_by_its_class():
    thing = Thing()
    OF_GROUP.set(thing, Thing())
    assert repr(ReplicaGroup.of(thing)) == "ReplicaGroup of Thing: of_group=Thing"


def test_an_optimizer_is_known_through_what_is_around_it():
    inner = keras.optimizers.SGD(0.1, name="sgd")
    outer = keras.optimizers.LossScaleOptimizer(inner)
    RATE.set(outer, 2.0)
    assert RATE.of(inner) == 2.0
    assert GradientRoute.of(outer) is GradientRoute.of(inner)
    assert repr(GradientRoute.of(outer)) == "GradientRoute of SGD 'sgd': rate=2.0"


def test_goes_with_its_object():
    model = keras.Sequential()
    value = Thing()
    held, subject = weakref.ref(value), weakref.ref(model)
    owner = PreparedModel.of(model)
    Fact(PreparedModel, "value").set(model, value)
    del model, value
    gc.collect()
    assert subject() is None
    assert repr(owner).startswith("PreparedModel of nothing any more: value=")
    del owner
    gc.collect()
    assert held() is None


@pytest.mark.parametrize("make", [copy.deepcopy, keras.models.clone_model], ids=["deepcopy", "clone"])
def test_copies_do_not_inherit(make):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    ROWS.set(model, 3)
    assert PreparedModel.find(make(model)) is None


def test_many_threads_find_one_owner():
    things, found = [Thing() for _ in range(200)], []
    start = threading.Barrier(4)

    def look():
        start.wait()
        found.append([ReplicaGroup.of(thing) for thing in things])

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(owner) for owners in found for owner in owners}) == len(things)


def _train_and_print():
    """Returns references to a trained model and its optimizer, and what is known of both and of the strategy."""
    dp = DataParallel(global_batch=4, devices=1)
    with dp.scope():
        inputs = keras.Input((1,))
        outputs = keras.layers.BatchNormalization(name="norm")(keras.layers.Dense(1)(inputs))
        model = dp.prepare(keras.Model(inputs, outputs, name="small"))
        model.compile(keras.optimizers.SGD(0.1, name="sgd"), "mse")
    model.fit(np.ones((4, 1)), np.ones((4, 1)), batch_size=4, verbose=0, callbacks=[NoiseScale()])
    owners = PreparedModel.of(model), GradientRoute.of(model.optimizer), ReplicaGroup.of(dp.strategy)
    return (weakref.ref(model), weakref.ref(model.optimizer)), [repr(owner) for owner in owners]


def test_what_a_call_of_fit_leaves_to_be_known_prints_and_goes_with_the_model():
    subjects, (of_model, of_optimizer, of_strategy) = _train_and_print()
    assert of_model.startswith("PreparedModel of Functional 'small': ")
    assert "batch_norm='local'" in of_model
    assert "last data=2 parts" in of_model
    assert "trained=4 of 6 weights" in of_model
    assert of_optimizer == "GradientRoute of SGD 'sgd': noise_recorder=NoiseRecorder"
    assert "made=Made(" in of_strategy
    keras.backend.clear_session()
    gc.collect()
    assert [subject() for subject in subjects] == [None, None]

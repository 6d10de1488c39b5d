"""What callbacks and random generators have counted, saved as JSON and given back."""

import datetime
import json
import random
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfscale.callbacks import ChiefOnly
from tfscale.errors import RecoveryError
from tfscale.framework.fit import callback_counters
from tfscale.recovery.counters import (
    check_states,
    read_callbacks,
    read_random_streams,
    restore_callbacks,
    restore_random_streams,
)
from tfscale.recovery.values import put_in_arrays, take_out_arrays


def through_json(value):
    arrays = []
    return put_in_arrays(json.loads(json.dumps(take_out_arrays(value, arrays))), arrays)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        0.1,
        float("inf"),
        "text",
        [1, [2.5, None]],
        {"a": {"b": [1]}},
        {"weights": [np.arange(3.0), np.ones((2, 2), np.int64)]},
        (1, (2.5, None)),
        {1, 2},
        frozenset({"a"}),
        b"\x00x",
        1 + 2j,
        datetime.date(2020, 1, 2),
        datetime.datetime(2020, 1, 2, 3, 4, 5, 6, datetime.timezone.utc),
        datetime.time(3, 4),
        datetime.timedelta(days=1, microseconds=5),
        {1: (2, 3), (1, 2): "b", None: set()},
        # As tfscale's own notes look.
        {"__array__": 5},
        {"__tuple__": [1], "more": {"__dict__": {"__set__": 0}}},
        {"__tensor__": None},
        # Python neither writes nor reads it in digits.
        [10**5000, -(10**5000)],
        np.datetime64("2020-01-02"),
        np.longdouble(1.5),
        np.void((1, 2.5), [("a", "i4"), ("b", "f8")]),
    ],
)
def test_values_come_back(value):
    found = through_json(value)
    np.testing.assert_equal(found, value)
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a", "long"]),
        np.array([b"a", b"b"]),
        np.array(["2020-01-02", "NaT"], "datetime64[D]"),
        np.array([[1], [2]], "timedelta64[s]"),
        np.array([{"a": 1}, [2], None], object),
        np.datetime64("2020-01-02"),
        np.zeros((0, 3)),
        np.array(True),
        # TensorFlow has none of these kinds.
        np.array([1.5], np.longdouble),
        np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")]),
        np.arange(3).astype(">f8"),
    ],
)
def test_arrays_come_back(array):
    found = through_json({"a": [array]})["a"][0]
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(found, array)


def test_tensors_come_back():
    found = through_json((tf.constant([1.5], tf.bfloat16), tf.constant("text"), keras.Variable([1, 2])))
    assert [each.dtype.name for each in found] == ["bfloat16", "string", "int32"]
    assert float(found[0][0]) == 1.5
    assert found[1].numpy() == b"text"
    np.testing.assert_array_equal(found[2], [1, 2])


class KeepsState(keras.callbacks.Callback):
    def __init__(self, state):
        super().__init__()
        self.state = state

    def get_state(self):
        return self.state() if callable(self.state) else self.state

    def set_state(self, state):
        self.state = state


def test_an_array_of_earlier_versions_comes_back():
    found = put_in_arrays({"__bytes_array__": ["<M8[D]", [1], "AQAAAAAAAAA="]}, [])
    np.testing.assert_array_equal(found, np.array(["1970-01-02"], "datetime64[D]"))


def test_what_changes_after_the_save_is_saved_as_it_was():
    seen, arrays = np.zeros(3), []
    take_out_arrays({"seen": seen}, arrays)
    seen += 1
    np.testing.assert_array_equal(arrays[0], np.zeros(3))


def fails():
    raise OSError("no such file")


def test_state_that_cannot_be_saved_is_refused_by_name():
    with pytest.raises(RecoveryError, match="KeepsState, whose state holds <object object"):
        check_states([KeepsState({"seen": {1}}), KeepsState({"a": [object()]})])


LOOP: list = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (LOOP, "something that holds itself"),
        (np.ma.array([1, 2], mask=[0, 1]), "masked_array"),
        (np.array([(1, None)], [("a", "i4"), ("b", "O")]), "numpy.ndarray"),
    ],
)
def test_what_would_not_come_back_as_it_was_is_refused_before_training(state, said):
    with pytest.raises(RecoveryError, match=said):
        check_states([KeepsState({"a": state})])


def test_a_log_that_cannot_be_saved_is_left_out_alone(caplog):
    history = keras.callbacks.History()
    history.epoch, history.history = [0], {"loss": [0.5], "odd": [object()]}
    assert read_callbacks([history]) == {"History 0": {"epoch": [0], "history": {"loss": [0.5]}}}
    assert "'odd' of callback History is left out of this checkpoint" in caplog.text


def test_a_log_file_that_was_removed_ends_no_training(tmp_path, caplog):
    assert read_callbacks([keras.callbacks.CSVLogger(str(tmp_path / "gone.csv"))]) == {}
    assert "the state of callback CSVLogger is left out" in caplog.text


def test_a_state_that_a_callback_does_not_take_back_is_named():
    class Changed(KeepsState):
        def set_state(self, state):
            raise KeyError("of an earlier version")

    states = read_callbacks([Changed(1)])
    with pytest.raises(RecoveryError, match="Received: Changed, whose `set_state` raised KeyError: 'of an earlier"):
        restore_callbacks([Changed(1)], states)


@pytest.mark.parametrize("state", [object(), fails])
def test_saving_goes_on_without_a_state_that_cannot_be_saved(caplog, state):
    callbacks = [KeepsState(state), KeepsState({"seen": {1}})]
    assert read_callbacks(callbacks) == {"KeepsState 1": {"seen": {1}}}
    assert "the state of callback KeepsState is left out" in caplog.text


def test_state_that_is_not_there_before_training_is_no_error():
    check_states([KeepsState(fails)])


COUNTING = {
    "EarlyStopping": (lambda: keras.callbacks.EarlyStopping("loss"), {"wait": 2, "best": 0.5, "best_epoch": 3}),
    "ReduceLROnPlateau": (lambda: keras.callbacks.ReduceLROnPlateau("loss"), {"wait": 1, "cooldown_counter": 4}),
    "ModelCheckpoint": (
        lambda: keras.callbacks.ModelCheckpoint("x.keras", save_best_only=True),
        {"best": 0.25, "_batches_seen_since_last_saving": 5, "_last_batch_seen": 9},
    ),
    "TensorBoard": (lambda: keras.callbacks.TensorBoard("x"), {"_global_train_batch": 7}),
    "SwapEMAWeights": (lambda: keras.callbacks.SwapEMAWeights(), {"_ema_weights_in_model": True}),
    "History": (lambda: keras.callbacks.History(), {"epoch": [0, 1], "history": {"loss": [1.0, 0.5]}}),
}


@pytest.mark.parametrize("name", COUNTING)
@pytest.mark.parametrize("wrap", [lambda callback: callback, ChiefOnly], ids=["itself", "ChiefOnly"])
def test_counters_of_keras(name, wrap):
    make, counted = COUNTING[name]
    old, new = make(), make()
    for attribute, value in counted.items():
        setattr(old, attribute, value)
    states = through_json(read_callbacks([wrap(old)]))
    restore_callbacks([wrap(new)], states)
    assert {attribute: getattr(new, attribute) for attribute in counted} == counted
    # Keras may have renamed what the table names.
    assert set(counted) <= set(callback_counters(old))


def test_several_of_a_class_and_one_that_is_new():
    old = [keras.callbacks.EarlyStopping("loss"), keras.callbacks.EarlyStopping("accuracy")]
    old[0].wait, old[1].wait = 1, 2
    new = [keras.callbacks.EarlyStopping("loss"), keras.callbacks.EarlyStopping("accuracy")]
    late = keras.callbacks.ReduceLROnPlateau("loss")
    # In another order than before.
    restore_callbacks([late, *reversed(new)], through_json(read_callbacks(old)))
    assert [callback.wait for callback in (*new, late)] == [1, 2, 0]


def test_rows_of_a_csv_logger(tmp_path):
    def logger():
        made = keras.callbacks.CSVLogger(str(tmp_path / "log.csv"))
        made.set_model(types.SimpleNamespace(stop_training=False))
        made.on_train_begin()
        return made

    old = logger()
    old.on_epoch_end(0, {"loss": 1.0})
    states = through_json(read_callbacks([old]))
    # Behind the save, and so to come again.
    old.on_epoch_end(1, {"loss": 0.75})
    old.on_train_end()
    new = logger()
    restore_callbacks([new], states)
    new.on_epoch_end(1, {"loss": 0.5})
    new.on_train_end()
    rows = [row.split(",")[:2] for row in (tmp_path / "log.csv").read_text().split()]
    assert rows == [["epoch", "loss"], ["0", "1.0"], ["1", "0.5"]]


@pytest.fixture
def seedless():
    """What other tests make afterwards must not have the seed of this one."""
    yield
    tf.random.set_seed(None)


@pytest.mark.usefixtures("seedless")
def test_random_streams():
    keras.utils.set_random_seed(5)
    keras.random.uniform(())
    states = through_json(read_random_streams())
    expected = random.random(), float(np.random.rand()), float(keras.random.uniform(()))
    keras.utils.set_random_seed(6)
    restore_random_streams(states)
    assert (random.random(), float(np.random.rand()), float(keras.random.uniform(()))) == expected

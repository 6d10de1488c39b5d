"""What is done where data of unknown length end."""

import keras
import pytest
import tensorflow as tf

from tests.processes import run_case
from tfscale.training.check.data_end import ending_as_keras


def _model(**compiled):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile("sgd", "mse", jit_compile=False, **compiled)
    return model


def _ending(data):
    if data == "no more":
        raise tf.errors.OutOfRangeError(None, None, "End of sequence")
    return data


@pytest.mark.parametrize(
    ("compiled", "calls", "times"),
    [
        pytest.param({}, ["a", "a"], (0, 0), id="known length"),
        pytest.param({}, ["a", "no more"], (1, 1), id="once"),
        pytest.param({}, ["a", "no more"] * 3, (1, 3), id="made once"),
        pytest.param({"run_eagerly": True}, ["a", "no more"], (0, 0), id="eager"),
        pytest.param({"steps_per_execution": 2}, ["a", "no more"], (0, 0), id="several steps per call"),
    ],
)
def test_what_needs_no_batch_is_run_where_keras_runs_it(compiled, calls, times):
    made, run = [], []

    def rest():
        made.append(1)
        return lambda: run.append(1)

    function = ending_as_keras(_model(**compiled), _ending, rest)
    for data in calls:
        if data == "no more":
            with pytest.raises(tf.errors.OutOfRangeError):
                function(data)
        else:
            assert function(data) == data
    assert (len(made), len(run)) == times


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_keras_counts_one_iteration_more_and_decays_once_more():
    """When this fails, Keras waits for the batch: what imitates it can go."""

    def fit(known):
        data = tf.data.Dataset.from_tensor_slices((tf.ones((6, 1)), tf.ones((6, 1)))).filter(lambda x, y: True).batch(2)
        model = _model()
        model.compile(keras.optimizers.SGD(0.1, weight_decay=0.5), "mse", jit_compile=False)
        data = data.apply(tf.data.experimental.assert_cardinality(3)) if known else data
        model.fit(data, shuffle=False, verbose=0)
        return int(model.optimizer.iterations), float(model.get_weights()[0][0, 0])

    (known, weight), (unknown, decayed) = fit(True), fit(False)
    assert (known, unknown) == (3, 4)
    assert decayed == pytest.approx(weight * (1 - 0.1 * 0.5), rel=1e-5)


def test_a_condition_that_keras_runs_in_part_is_named():
    said, iterations = run_case("tests.training.check.cases_data_end:accumulating")
    assert said.count("assert_cardinality") == 1
    assert iterations == 3

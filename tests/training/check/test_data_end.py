"""What is done where data of unknown length end."""

import keras
import pytest
import tensorflow as tf

from tests.processes import run_case
from tfscale.training.check.data_end import DataEnd


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
        pytest.param({}, ["a", "no more", "other data", "no more", "no more"], (2, 3), id="made once for each data"),
        pytest.param({"run_eagerly": True}, ["a", "no more"], (0, 0), id="eager"),
        pytest.param({"steps_per_execution": 2}, ["a", "no more"], (0, 0), id="several steps per call"),
    ],
)
def test_what_needs_no_batch_is_run_where_keras_runs_it(compiled, calls, times):
    made, run = [], []

    def rest(spec):
        made.append(spec)
        return lambda: run.append(spec)

    end = DataEnd(_model(**compiled), rest)
    function = end.as_keras(_ending)
    end.begin((tf.TensorSpec((None, 1)), None))
    for data in calls:
        if data == "other data":
            end.begin((tf.TensorSpec((None, 2)), None))
        elif data == "no more":
            with pytest.raises(tf.errors.OutOfRangeError):
                function(data)
        else:
            assert function(data) == data
    assert (len(made), len(run)) == times


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param([6, None, 6], [6, None, 6], id="each its own"),
        pytest.param([None, 6], [None, None], id="one for any number is there"),
        pytest.param([6, 8, 6, 8], [6, None, 6, None], id="made for any number"),
    ],
)
def test_data_are_met_by_the_trace_that_keras_would_take(given, expected):
    made = []
    end = DataEnd(_model(), lambda spec: made.append(spec[0].shape[0]) or (lambda: False))
    function = end.as_keras(_ending)
    for rows in given:
        end.begin((tf.TensorSpec((rows, 1)), None))
        with pytest.raises(tf.errors.OutOfRangeError):
            function("no more")
    assert made == list(dict.fromkeys(expected))


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


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize(("drop_remainder", "expected"), [(True, 3 / 4), (False, 1.0)])
def test_keras_counts_rows_whose_number_it_knows(drop_remainder, expected):
    """When this fails, the logs of Keras are means of the batches that there were: what imitates others can go."""

    def evaluate(known):
        data = tf.data.Dataset.from_tensor_slices((tf.ones((6, 1)), tf.zeros((6, 1)))).filter(lambda x, y: True)
        data = data.batch(2, drop_remainder=drop_remainder)
        data = data.apply(tf.data.experimental.assert_cardinality(3)) if known else data
        return _model().evaluate(data, verbose=0)

    assert evaluate(False) == pytest.approx(evaluate(True) * expected)


def test_data_may_have_other_parts_than_before():
    rows, ragged = tf.TensorSpec((None, 1)), tf.RaggedTensorSpec((None, None))
    given = [(rows, rows), (rows, rows, rows), (rows, None), ({"a": rows, "b": ragged}, None, rows), (rows,), rows]
    met = []
    end = DataEnd(_model(), lambda spec: met.append(spec) or (lambda: False))
    for spec in given:
        end.begin(spec)
        with pytest.raises(tf.errors.OutOfRangeError):
            end.as_keras(_ending)("no more")
    assert [tf.nest.map_structure(lambda leaf: getattr(leaf, "shape", None), spec) for spec in met] == [
        tf.nest.map_structure(lambda leaf: getattr(leaf, "shape", None), spec) for spec in given
    ]


def test_a_condition_that_keras_runs_in_part_is_named():
    said, iterations = run_case("tests.training.check.cases_data_end:accumulating")
    assert said.count("assert_cardinality") == 1
    assert iterations == 3

"""What `fit` is given in the place of arrays that each worker would shuffle for itself."""

import itertools
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfscale.training.call.row_order import _can_be_gathered, _hand_over_in_order, _warn_of_one_order_for_two
from tfscale.training.step.call_arguments import CallArguments

ROWS, BATCH = 23, 5
IDS = np.arange(ROWS)


def handed_over(seed=7, **arguments):
    model = keras.Sequential()
    given = CallArguments(model.fit, "fit", (), {"batch_size": BATCH, **arguments})
    assert _can_be_gathered(given)
    _hand_over_in_order(given, seed)
    return given


def passes(dataset, count=1):
    return [[[np.asarray(leaf) for leaf in tf.nest.flatten(batch)] for batch in dataset] for _ in range(count)]


def test_every_row_comes_once_in_each_pass_in_an_order_of_its_own():
    first, second = (passes(handed_over(x=IDS, y=10 * IDS)["x"], 3) for _ in range(2))
    orders = [[int(row) for rows, _ in each for row in rows] for each in first]
    assert [[len(rows) for rows, _ in each] for each in first] == 3 * [[5, 5, 5, 5, 3]]
    assert all(sorted(order) == list(IDS) for order in orders)
    assert len({tuple(order) for order in [*orders, list(IDS)]}) == 4
    # Whoever has the seed has the order, whatever TensorFlow's own is.
    assert all(np.array_equal(a, b) for a, b in zip(tf.nest.flatten(first), tf.nest.flatten(second), strict=True))
    assert all(np.array_equal(10 * rows, labels) for each in first for rows, labels in each)


def test_global_seed_does_not_count():
    def order():
        return [int(row) for (rows,) in passes(handed_over(x=IDS)["x"])[0] for row in rows]

    first = order()
    tf.random.set_seed(3)
    assert order() == first
    assert handed_over(seed=8, x=IDS)["x"] is not None


def test_shuffle_within_batches():
    (batches,) = passes(handed_over(x=IDS, shuffle="batch")["x"])
    rows = [list(each) for (each,) in batches]
    assert [sorted(each) for each in rows] == [list(IDS[start : start + BATCH]) for start in range(0, ROWS, BATCH)]
    assert any(each != sorted(each) for each in rows)


def test_number_of_batches_is_known():
    assert int(handed_over(x=IDS)["x"].cardinality()) == 5


@pytest.mark.parametrize(
    ("arguments", "spec"),
    [
        ({"x": IDS}, ("int64",)),
        ({"x": IDS, "y": IDS / 2}, ("int64", "float32")),
        ({"x": IDS.astype("float16"), "y": IDS}, ("float32", "int64")),
        ({"x": [IDS, IDS * 1.0], "y": IDS}, (("int64", "float32"), "int64")),
        ({"x": {"a": IDS, "b": tf.constant(IDS)}, "y": IDS}, ({"a": "int64", "b": "int64"}, "int64")),
        ({"x": IDS, "y": IDS, "sample_weight": IDS / 2}, ("int64", "int64", "float32")),
        ({"x": IDS, "y": [IDS, IDS], "sample_weight": IDS / 2}, ("int64", ("int64",) * 2, ("float32",) * 2)),
        ({"x": IDS.astype(str), "y": IDS}, ("string", "int64")),
    ],
)
def test_forms_of_data(arguments, spec):
    given = handed_over(**arguments)
    found = keras.tree.map_structure(lambda leaf: leaf.dtype.name, given["x"].element_spec)
    assert found == (spec if len(spec) > 1 or isinstance(found, tuple) else spec[0])
    assert all(given.get(name) is None for name in ("y", "sample_weight", "batch_size"))
    assert given["shuffle"] is False


def test_part_for_validation_is_keras_s():
    given = handed_over(x=IDS, y=10 * IDS, validation_split=0.3)
    rows, labels = given["validation_data"]
    assert list(rows) == list(IDS[16:])
    assert list(labels) == list(10 * IDS[16:])
    trained = [int(row) for rows, _ in passes(given["x"])[0] for row in rows]
    assert sorted(trained) == list(IDS[:16])
    assert given["validation_split"] == 0.0
    assert given["validation_batch_size"] == BATCH


@pytest.mark.parametrize(
    "arguments",
    [
        {"x": IDS, "y": IDS[1:]},
        {"x": IDS.astype(object), "y": IDS},
        {"x": IDS, "y": [IDS, None]},
        {"x": IDS[:0]},
        {"x": np.float32(1.0)},
        {"x": tf.sparse.from_dense(np.eye(ROWS)), "y": IDS},
        {"x": tf.ragged.constant([[1], [1, 2]]), "y": IDS[:2]},
        {"x": IDS, "y": IDS, "class_weight": {0: 1.0}, "sample_weight": IDS},
    ],
)
def test_what_is_left_to_keras(arguments):
    assert not _can_be_gathered(CallArguments(keras.Sequential().fit, "fit", (), {"batch_size": BATCH, **arguments}))


@pytest.mark.parametrize("options", [{}, {"class_weight": {0: 2.0, 1: 0.5}}, {"validation_split": 0.25}])
def test_trains_like_arrays_in_that_order(options):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(ROWS, 3)), rng.integers(0, 2, ROWS)

    def trained(arguments):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, "sigmoid")])
        model.compile(keras.optimizers.SGD(0.5), "binary_crossentropy")
        history = model.fit(**arguments, verbose=0).history
        return history, model.get_weights()

    given = handed_over(x=x, y=y, **options)
    order = list(itertools.chain(*(rows for rows, *_ in passes(handed_over(x=x, y=y, **options)["x"])[0])))
    places = [int(np.argmin(np.abs(x.astype("float32") - row).sum(1))) for row in order]
    held = {"validation_data": given["validation_data"]} if "validation_split" in options else {}
    plain = {"x": x[places], "y": y[places], "shuffle": False, "batch_size": BATCH, **held}
    plain |= {name: value for name, value in options.items() if name == "class_weight"}
    (ours, weights), (keras_s, expected) = trained({**given}), trained(plain)
    for name, values in keras_s.items():
        np.testing.assert_allclose(ours[name], values, rtol=1e-5)
    for own, other in zip(weights, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5)


SHUFFLED = tf.data.Dataset.from_tensor_slices((IDS, IDS)).shuffle(ROWS, seed=1).batch(BATCH)
FIXED = tf.data.Dataset.from_tensor_slices((IDS, IDS)).shuffle(ROWS, seed=1, reshuffle_each_iteration=False)


@pytest.mark.parametrize(
    ("x", "validation", "is_warned"),
    [
        (SHUFFLED.repeat(), SHUFFLED, True),
        (SHUFFLED.repeat(), SHUFFLED.repeat().map(lambda x, y: (x, -y)).take(2), True),
        # Its passes end before the validation begins.
        (SHUFFLED, SHUFFLED, False),
        (FIXED.batch(BATCH).repeat(), FIXED.batch(BATCH), False),
        (SHUFFLED.repeat(), FIXED.batch(BATCH), False),
        (SHUFFLED.repeat(), None, False),
        (IDS, (IDS, IDS), False),
    ],
)
def test_one_shuffle_for_training_and_validation(x, validation, is_warned):
    given = CallArguments(keras.Sequential().fit, "fit", (), {"x": x, "validation_data": validation})
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        _warn_of_one_order_for_two(given)
    assert [str(each.message)[:36] for each in said] == is_warned * ["Training and validation draw the ord"]

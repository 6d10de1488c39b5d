"""What a script is told of the number of replicas, and what becomes of it."""

import json
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.replicas.own_share import make_lone_share
from tfscale.replicas.replica_count import LoopRows, in_loop, told
from tfscale.replicas.share import in_share

N, OWN, TOTAL = 4, 3, 10
OUTSIDE = told(N)


def in_step(compute):
    with in_share(make_lone_share(tf.constant(1))):
        return compute()


def on_replica(compute):
    with in_loop(LoopRows(tf.constant(OWN), lambda: tf.constant(TOTAL))):
        return compute()


def traced(run):
    return lambda compute: tf.function(lambda: run(compute), autograph=False)()


WHERE = {"eagerly": lambda run: run, "in a graph": traced}

# What is computed of a number of replicas, and what it is in a step, in a loop and outside of both.
COMPUTED = {
    "mean": (lambda n: tf.constant(6.0) / n, 6.0, 6.0 * OWN / TOTAL, 6.0 / N),
    "mean in float64": (lambda n: tf.constant(6.0, tf.float64) / n, 6.0, 6.0 * OWN / TOTAL, 6.0 / N),
    "integer": (lambda n: tf.constant(6) / n, 6.0, 6.0 * OWN / TOTAL, 6.0 / N),
    "divided by Keras": (lambda n: keras.ops.divide(tf.constant(6.0), n), 6.0, 6.0 * OWN / TOTAL, 6.0 / N),
    "a cast of it": (lambda n: tf.constant(6.0) / tf.cast(n, tf.float32), 6.0, 6.0 * OWN / TOTAL, 6.0 / N),
    "rows times it": (lambda n: tf.constant(OWN) * n, OWN, TOTAL, OWN * N),
    "it times rows": (lambda n: n * tf.constant(OWN), OWN, TOTAL, OWN * N),
    "other rows times it": (lambda n: tf.constant(5) * n, 5, 5 * N, 5 * N),
}


# Eagerly TensorFlow takes an integer that multiplies a tensor without asking it.
ASKED = [(name, where) for name in COMPUTED for where in WHERE if where != "eagerly" or "rows times" not in name]


@pytest.mark.parametrize(("name", "where"), ASKED)
def test_number_that_was_asked_for_outside(name, where):
    compute, step, loop, outside = COMPUTED[name]
    runs = ((in_step, step), (on_replica, loop), (lambda compute: compute(), outside))
    for run, expected in runs:
        assert float(WHERE[where](run)(lambda: compute(OUTSIDE))) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("name", COMPUTED)
def test_number_that_was_asked_for_inside(name, where):
    compute, step, loop, _ = COMPUTED[name]
    for run, expected in ((in_step, step), (on_replica, loop)):
        assert float(WHERE[where](run)(lambda: compute(told(N)))) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("fraction", [lambda: 1 / OUTSIDE, lambda: 1 / told(N), lambda: 1.0 / told(N)])
def test_fraction(fraction):
    def compute():
        part = fraction()
        return tf.stack([tf.constant(6.0) * part, part * tf.constant(6.0), keras.ops.cast(part, "float32") * 6.0])

    np.testing.assert_allclose(traced(on_replica)(compute), 6.0 * OWN / TOTAL, rtol=1e-6)
    np.testing.assert_allclose(traced(in_step)(compute), 6.0, rtol=1e-6)
    np.testing.assert_allclose(compute(), 6.0 / N, rtol=1e-6)


@pytest.mark.parametrize("inside", [False, True])
def test_it_is_the_number_to_python(inside):
    count = on_replica(lambda: told(N)) if inside else OUTSIDE
    assert (count == N, count > 1, count < 5, int(count), str(count)) == (True, True, True, N, "4")
    assert (64 * count, count * 64, 64 // count, 64 % count, count - 1, 1 + count, count**2) == (
        256,
        256,
        16,
        0,
        3,
        5,
        16,
    )
    assert (0.1 * count, 64 / count, count / 2) == (pytest.approx(0.4), 16.0, 2.0)
    assert list(range(count)) == [0, 1, 2, 3]
    assert {N: "four"}[count] == "four"


def test_files_hold_the_number():
    assert json.dumps({"replicas": OUTSIDE, "part": 1 / OUTSIDE}) == '{"replicas": 4, "part": 0.25}'
    for value in (OUTSIDE, 1 / OUTSIDE):
        found = pickle.loads(pickle.dumps(value))
        assert found == value
        assert type(found) in (int, float)


def test_one_replica_is_one():
    assert type(told(1)) is int
    assert type(in_step(lambda: told(N))) is int


def test_replica_without_rows_has_no_part():
    with in_loop(LoopRows(tf.constant(0), lambda: tf.constant(2))):
        assert float(tf.constant(np.nan) / told(N)) == 0.0
        assert int(tf.constant(0) * told(N)) == 2


IN_A_LIST = {
    "concat": lambda n: tf.concat([[n], tf.constant([2, 3])], axis=0),
    "shape": lambda n: tf.reshape(tf.zeros(8), [n, -1]),
    "constant": tf.constant,
    "comparison": lambda n: tf.constant(4) == n,
}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("name", IN_A_LIST)
def test_in_a_list_or_a_comparison_it_is_refused_by_name(name, where):
    with pytest.raises(ModelError, match=r"Write `int\(strategy.num_replicas_in_sync\)`"):
        on_replica(lambda: WHERE[where](lambda compute: compute())(lambda: IN_A_LIST[name](told(N))))


# What makes a whole number of it: of a replica's rows there is none.
WHOLE = {
    "cast": lambda n: tf.cast(n, tf.int32),
    "cast to int64": lambda n: tf.cast(n, "int64"),
    "cast of Keras": lambda n: keras.ops.cast(n, "int32"),
    "saturating cast": lambda n: tf.saturate_cast(n, tf.int32),
    "converted": lambda n: tf.convert_to_tensor(n, tf.int32),
    "rounded": tf.round,
    "added": lambda n: tf.constant(1) + n,
}
# Of what was made of it: to be seen in a graph alone.
WHOLE_AFTER_ALL = {
    "range": tf.range,
    "divided without a rest": lambda n: tf.constant(6) // n,
    "cast of a product": lambda n: tf.cast(tf.constant(1.0) * n, tf.int32),
    "ceiling": tf.math.ceil,
    "cast twice": lambda n: tf.cast(tf.cast(n, tf.float32), tf.int32),
    "rounded cast": lambda n: tf.round(tf.cast(n, tf.float32)),
    "ceiling in a list": lambda n: tf.math.ceil(tf.stack([tf.cast(n, tf.float32)])[0]),
    "cast of the identity": lambda n: tf.cast(tf.identity(n), tf.int32),
    "comparison of a cast": lambda n: tf.cast(n, tf.float32) > 3.0,
    "one less than a cast": lambda n: tf.cast(n, tf.float32) - 1.0,
    "floor of a quotient": lambda n: tf.constant(6.0) // tf.cast(n, tf.float32),
}
ROUNDED = [(name, where) for where in WHERE for name in WHOLE] + [(name, "in a graph") for name in WHOLE_AFTER_ALL]


@pytest.mark.parametrize("asked", ["inside", "outside"])
@pytest.mark.parametrize(("name", "where"), ROUNDED)
def test_no_whole_number_is_made_of_it(name, where, asked):
    compute = (WHOLE | WHOLE_AFTER_ALL)[name]
    with pytest.raises(ModelError, match=r"Write `int\(strategy.num_replicas_in_sync\)`"):
        WHERE[where](on_replica)(lambda: compute(OUTSIDE if asked == "outside" else told(N)))


def test_it_is_no_float_of_python():
    for ask in (lambda: told(N), lambda: OUTSIDE):
        with pytest.raises(ModelError, match=r"Write `int\(strategy.num_replicas_in_sync\)`"):
            on_replica(lambda ask=ask: float(ask()))
    assert (float(OUTSIDE), in_step(lambda: float(OUTSIDE))) == (N, 1.0)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("name", ["cast", "cast to int64", "cast of Keras", "added"])
def test_elsewhere_it_is_a_whole_number(name, where):
    assert int(WHERE[where](lambda compute: compute())(lambda: WHOLE[name](OUTSIDE))) == N + (name == "added")
    assert int(WHERE[where](in_step)(lambda: WHOLE[name](OUTSIDE))) == 1 + (name == "added")


def test_numbers_of_numpy_are_divided_like_all_others():
    assert float(on_replica(lambda: np.float32(6.0) / told(N))) == pytest.approx(6.0 * OWN / TOTAL)


def test_other_errors_of_a_loop_stay_what_they_are():
    with pytest.raises(ValueError, match="of a user"):
        on_replica(lambda: (_ for _ in ()).throw(ValueError("of a user")))

"""What is drawn once for the whole batch is drawn alike by all replicas, and is what one device draws."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.exact.cases_draws_of_all_rows import DIVIDED, PROGRAMS, WITH_ALL_ROWS
from tests.processes import run_case, run_workers
from tfscale.framework.draws import drawn_shape

CASES = "tests.exact.cases_draws_of_all_rows"
NAMES = [*PROGRAMS, "Keras's RandomCrop"]


@pytest.mark.parametrize(
    ("draw", "shape"),
    [
        (lambda x, seed: keras.random.uniform((), seed=seed), []),
        (lambda x, seed: keras.random.normal([3, 4], seed=seed), [3, 4]),
        (lambda x, seed: keras.random.normal(tf.constant([3, 4]), seed=seed), [3, 4]),
        (lambda x, seed: keras.random.normal(tf.shape(x), seed=seed), None),
        (lambda x, seed: keras.random.truncated_normal(keras.ops.shape(x), seed=seed), [None, 3]),
        (lambda x, seed: keras.random.randint((tf.shape(x)[0], 2), 0, 9, seed=seed), [None, 2]),
        (lambda x, seed: keras.random.dropout(x, 0.5, seed=seed), [None, 3]),
        (lambda x, seed: keras.random.dropout(x, 0.5, noise_shape=(1, 3), seed=seed), [1, 3]),
        (lambda x, seed: keras.random.dropout(x, 0.5, noise_shape=(None, 1), seed=seed), [None, 1]),
        (lambda x, seed: keras.random.shuffle(tf.range(7), seed=seed), [7]),
        (lambda x, seed: keras.random.categorical(x, 2, seed=seed), [None, 3]),
        (lambda x, seed: keras.random.gamma((2,), 0.5, seed=seed), [2]),
        (lambda x, seed: keras.random.beta((2,), 0.5, 0.5, seed=seed), [2]),
        (lambda x, seed: keras.random.binomial((2,), 3.0, 0.5, seed=seed), [2]),
        (lambda x, seed: tf.random.stateless_uniform((), seed.next()), None),
    ],
)
def test_the_shape_that_is_drawn(draw, shape):
    seeds, found = keras.random.SeedGenerator(1), []
    own = seeds.next

    def noting(ordered=True):
        found.append(drawn_shape())
        return own(ordered)

    seeds.next = functools.partial(noting)
    tf.function(lambda x: draw(x, seeds)).get_concrete_function(tf.TensorSpec([None, 3]))
    assert found[0] == shape


def _assert_equal(found, name):
    (ours, drawn), (expected, plain) = found[name]
    for own, other in zip(ours, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(drawn, plain, rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module", params=[False, True], ids=["any size", "one size"])
def trained(request):
    return run_case(f"{CASES}:equal", args=({}, request.param))


@pytest.mark.parametrize("name", NAMES)
def test_training(trained, name):
    _assert_equal(trained, name)


@pytest.fixture(scope="module", params=[{"micro_batch": 2}, {"logical_replicas": 4, "replicas": 2}], ids=str)
def in_parts(request):
    return run_case(f"{CASES}:equal", args=(request.param,))


@pytest.mark.parametrize("name", DIVIDED)
def test_micro_steps_and_logical_replicas(in_parts, name):
    _assert_equal(in_parts, name)


@pytest.fixture(scope="module")
def eagerly():
    return run_case(f"{CASES}:eagerly")


@pytest.mark.parametrize("name", [*DIVIDED, WITH_ALL_ROWS])
def test_steps_that_run_eagerly(eagerly, name):
    ours, expected, said = eagerly[name]
    assert not any("could not be checked" in each for each in said)
    if name == WITH_ALL_ROWS:
        # Eagerly nothing divides them otherwise.
        assert "with another number drawn for the whole batch" in ours
        assert "leave `run_eagerly=True` out" in ours
    else:
        _assert_equal({name: (ours, expected)}, name)


@pytest.mark.parametrize("is_eager", [False, True], ids=["graph", "eager"])
def test_loops_by_hand(is_eager):
    for drawn in run_case(f"{CASES}:loops", args=(is_eager,)).values():
        np.testing.assert_allclose(*drawn, rtol=1e-5)


def test_on_workers():
    for found in run_workers(f"{CASES}:on_workers", 2):
        for name in found:
            _assert_equal(found, name)


def test_rows_of_a_loop_draw_their_own():
    for drawn in run_case(f"{CASES}:rows_of_loop"):
        assert len(np.unique(drawn)) == drawn.size


def test_what_others_draw_is_said():
    found = run_case(f"{CASES}:said")
    for name in ("by TensorFlow", "by the next seed"):
        assert "draws something of a shape that has no rows" in found[name]
        assert "keras.random.SeedGenerator" in found[name]
    assert found["for each row"] == found["by Keras"] == ""
    assert "with another number drawn for the whole batch" in found["a gate by TensorFlow"]

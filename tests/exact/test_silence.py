"""Traced functions that draw nothing; one process, no strategy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfscale.exact.silence import silenced

GENERATOR = tf.random.Generator.from_seed(1)
SEEDS = keras.random.SeedGenerator(1)


@pytest.mark.parametrize(
    "draw",
    [
        lambda shape: tf.random.normal(shape),
        lambda shape: tf.random.uniform(shape),
        lambda shape: tf.random.truncated_normal(shape),
        lambda shape: tf.random.uniform(shape, 2, 9, tf.int32),
        lambda shape: tf.random.stateless_normal(shape, SEEDS.next()),
        lambda shape: tf.random.stateless_uniform(shape, SEEDS.next(), 2, 9, tf.int32),
        lambda shape: keras.random.normal(shape, seed=SEEDS),
        lambda shape: keras.random.dropout(tf.ones(shape), 0.5, seed=SEEDS),
        lambda shape: tf.random.gamma(shape, 0.5),
        lambda shape: tf.random.poisson(shape, 3.0),
        lambda shape: tf.random.stateless_poisson(shape, SEEDS.next(), 3.0),
        lambda shape: tf.random.stateless_binomial(shape, SEEDS.next(), 5.0, 0.5),
        lambda shape: tf.random.categorical(tf.ones((shape[0], 4)), 3),
        lambda shape: keras.random.categorical(tf.ones((shape[0], 4)), 3, seed=SEEDS),
        lambda shape: keras.random.gamma(shape, 0.5, seed=SEEDS),
        lambda shape: keras.random.beta(shape, 0.5, 0.7, seed=SEEDS),
        lambda shape: keras.random.binomial(shape, 5.0, 0.5, seed=SEEDS),
        lambda shape: GENERATOR.normal(shape) + GENERATOR.uniform(shape) + GENERATOR.truncated_normal(shape),
        lambda shape: GENERATOR.uniform(shape, 2, 9, tf.int32),
        lambda shape: GENERATOR.binomial(shape, 3.0, 0.5),
    ],
)
def test_every_row_is_the_same(draw):
    def noisy(x):
        return [tf.cast(draw(tf.shape(x)), tf.float32)]

    concrete = tf.function(noisy).get_concrete_function(tf.TensorSpec([None, 3]))
    rows = np.arange(12, dtype="float32").reshape(4, 3)
    call = silenced(concrete, [SEEDS.state.value])
    (whole,) = call(tf.constant(rows))
    assert call is not concrete
    parts = [call(tf.constant(part))[0] for part in (rows[:1], rows[1:])]
    assert np.array_equal(whole, np.concatenate(parts))
    assert len(set(np.ravel(whole))) == 1


def test_inside_of_loops_and_with_variables():
    weight = tf.Variable(2.0)

    def noisy(x):
        total = tf.while_loop(
            lambda index, _: index < 3,
            lambda index, total: (index + 1, total + weight * tf.random.normal([])),
            (tf.constant(0), x),
        )[1]
        weight.assign_add(1.0)
        return [total]

    concrete = tf.function(noisy, autograph=False).get_concrete_function(tf.TensorSpec([]))
    call = silenced(concrete)
    first = float(call(tf.constant(1.0))[0])
    weight.assign(2.0)
    assert float(call(tf.constant(1.0))[0]) == first
    assert float(weight) == 3.0


def test_what_draws_nothing_is_left_as_it_is():
    concrete = tf.function(lambda x: [x + 1]).get_concrete_function(tf.TensorSpec([]))
    assert silenced(concrete) is concrete


@pytest.mark.parametrize(
    "order",
    [
        lambda rows: tf.random.shuffle(rows),
        lambda rows: keras.random.shuffle(rows, seed=SEEDS),
        lambda rows: tf.gather(rows, tf.argsort(tf.random.uniform(tf.shape(rows), 1.0, 3.0))),
        lambda rows: tf.gather(rows, tf.argsort(tf.random.normal(tf.shape(rows)), direction="DESCENDING")),
        lambda rows: tf.map_fn(tf.random.shuffle, rows[None])[0],
    ],
)
def test_an_order_that_is_drawn_is_always_the_same_other_one(order):
    concrete = tf.function(lambda x: [order(x)]).get_concrete_function(tf.TensorSpec([None]))
    call = silenced(concrete, [SEEDS.state.value])
    first = call(tf.range(4.0))[0].numpy()
    assert np.array_equal(call(tf.range(4.0))[0], first)
    assert sorted(first) == [0, 1, 2, 3]
    assert any(np.not_equal(first, np.arange(4)))


def test_an_order_within_each_row_is_that_of_every_row():
    def masked(x):
        return [tf.gather(x, tf.argsort(tf.random.uniform(tf.shape(x)), axis=-1)[:, :2], batch_dims=1)]

    call = silenced(tf.function(masked).get_concrete_function(tf.TensorSpec([None, None])))
    kept = call(tf.tile(tf.range(6.0)[None], [3, 1]))[0].numpy()
    assert len(set(map(tuple, kept))) == 1


def test_an_order_of_what_was_given_is_kept():
    def nearest(x):
        return [tf.argsort(x + 1e-6 * tf.random.normal(tf.shape(x)))]

    call = silenced(tf.function(nearest).get_concrete_function(tf.TensorSpec([None])))
    assert list(call(tf.constant([3.0, 1.0, 2.0]))[0].numpy()) == [1, 2, 0]


@pytest.mark.parametrize(
    "draw",
    [
        lambda shape, count: tf.random.stateless_normal(shape, [1, 2]),
        lambda shape, count: tf.random.stateless_normal(shape, [1, count]),
        lambda shape, count: keras.random.normal(shape, seed=1),
        lambda shape, count: keras.random.gamma(shape, 0.5, seed=1),
    ],
)
def test_seeds_that_are_written_down_are_left(draw):
    count = tf.Variable(3)
    concrete = tf.function(lambda x: [draw(tf.shape(x), count)]).get_concrete_function(tf.TensorSpec([None]))
    drawn = silenced(concrete, [SEEDS.state.value])(tf.zeros(4))[0].numpy()
    assert np.array_equal(drawn, concrete(tf.zeros(4))[0])
    assert len(set(drawn)) == 4


@pytest.mark.parametrize("is_by_hand", [False, True])
def test_seeds_inside_of_a_function_are_those_that_it_is_called_with(is_by_hand):
    step = tf.Variable(3, dtype=tf.int32)

    @tf.function(autograph=False)
    def inside(x):
        seed = tf.stack([1, step]) if is_by_hand else SEEDS.next()
        return x + tf.random.stateless_normal(tf.shape(x), seed)

    concrete = tf.function(lambda x: [inside(x)], autograph=False).get_concrete_function(tf.TensorSpec([None, 3]))
    (drawn,) = silenced(concrete, [SEEDS.state.value])(tf.zeros([4, 3]))
    # What has a seed that is written down is left, and seen where it is compared.
    assert (len(set(np.ravel(drawn))) == 1) is not is_by_hand


@pytest.mark.parametrize("is_inside", [False, True])
@pytest.mark.parametrize("sampler", [tf.random.uniform_candidate_sampler, tf.random.log_uniform_candidate_sampler])
def test_classes_that_are_sampled_are_always_the_same(sampler, is_inside):
    def sample(labels):
        return tuple(sampler(labels, num_true=1, num_sampled=5, unique=True, range_max=1000))

    inner = tf.function(sample) if is_inside else sample
    concrete = tf.function(lambda labels: list(inner(labels))).get_concrete_function(tf.TensorSpec([None, 1], tf.int64))
    call = silenced(concrete)
    classes, expected, expected_of_sampled = call(tf.constant([[7], [8], [9]], tf.int64))
    assert classes.numpy().tolist() == [0, 1, 2, 3, 4]
    assert expected.shape == (3, 1)
    assert set(np.ravel(expected)) == set(np.ravel(expected_of_sampled)) == {0.5}


def test_a_loss_over_sampled_classes_is_the_same_twice():
    weights, biases = tf.random.stateless_normal((50, 4), [1, 2]), tf.zeros(50)

    def loss(labels, inputs):
        return [tf.nn.sampled_softmax_loss(weights, biases, labels[:, None], inputs, 6, 50)]

    specs = tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, 4])
    call = silenced(tf.function(loss).get_concrete_function(*specs))
    labels, inputs = tf.range(8, dtype=tf.int64), tf.random.stateless_normal((8, 4), [3, 4])
    (whole,) = call(labels, inputs)
    parts = [call(labels[:3], inputs[:3])[0], call(labels[3:], inputs[3:])[0]]
    np.testing.assert_allclose(whole, np.concatenate(parts), rtol=1e-5)

"""Run in a fresh process: loops by hand that work on gradients between the tape and the optimizer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tfscale.errors import ModelError

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(26, 5)).astype("float32"), RNG.normal(size=(26, 2)).astype("float32")


def all_reduced(op: str) -> Callable[[Any], Any]:
    return lambda gradients: tf.distribute.get_replica_context().all_reduce(op, gradients)


def _merged(gradients: Any) -> Any:
    def merge(strategy: Any, each: Any) -> Any:
        return [strategy.reduce("SUM", one, axis=None) for one in each]

    return tf.distribute.get_replica_context().merge_call(merge, args=(gradients,))


def _global(gradients: Any) -> Any:
    return tf.clip_by_global_norm(gradients, 0.1)[0]


def _by_length(gradients: Any) -> Any:
    length = tf.linalg.global_norm(gradients)
    return [each / (length + 1e-3) for each in gradients]


# What is done to gradients, of a loss that is a part of a sum; and whether it is refused.
WAYS: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "nothing": (lambda gradients: gradients, False),
    "scaled": (lambda gradients: [0.5 * each / 3.0 for each in gradients], False),
    "centred": (lambda gradients: [each - tf.reduce_mean(each, 0, keepdims=True) for each in gradients], False),
    "summed": (all_reduced("SUM"), False),
    "merged": (_merged, False),
    "summed, clipped": (lambda gradients: _global(all_reduced("SUM")(gradients)), False),
    "summed by tfscale, clipped": (lambda gradients: _global(tfscale.sum_gradients(gradients)), False),
    "clipped by the norm of all": (_global, True),
    "clipped by its norm": (lambda gradients: [tf.clip_by_norm(each, 0.1) for each in gradients], True),
    "clipped by value": (lambda gradients: [tf.clip_by_value(each, -0.1, 0.1) for each in gradients], True),
    "divided by the norm of all": (_by_length, True),
    "signs": (lambda gradients: [tf.sign(each) for each in gradients], True),
}


def _penalised(x: Any, y: Any, kernel: Any, bias: Any) -> Any:
    errors = tf.reduce_mean(tf.square(y - tf.tanh(x @ kernel + bias)), -1)
    penalty = tf.nn.scale_regularization_loss(0.1 * tf.reduce_sum(tf.convert_to_tensor(kernel) ** 2))
    return tf.nn.compute_average_loss(errors) + penalty


def trained(
    strategy: Any,
    batch: Any,
    gradients_of: Callable[[Any, Any], Any],
    loss_of: Callable[[Any, Any, Any, Any], Any] = _penalised,
) -> np.ndarray:
    with strategy.scope():
        kernel, bias = keras.Variable(X[:5, :2]), keras.Variable(X[6, :2])
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build([kernel, bias])

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(x, y, kernel, bias)
        variables = [kernel, bias]
        gradients = tape.gradient(loss, [each.value for each in variables])
        optimizer.apply_gradients(zip(gradients_of(gradients, variables), variables, strict=True))

    tf.function(lambda *args: strategy.run(step, args=args))(*batch)
    return np.concatenate([np.ravel(each) for each in (kernel, bias)])


def ways(replicas: int) -> dict[str, float | str]:
    """By how much the weights differ from those of one device, or what was said."""

    def train(strategy: Any, batch: Any, name: str) -> np.ndarray:
        is_alone = not isinstance(batch[0], tf.distribute.DistributedValues)
        by_itself = is_alone and ("summed" in name or name == "merged")
        change = _alone(name) if by_itself else WAYS[name][0]
        return trained(strategy, batch, lambda gradients, _: change(gradients))

    return differences(replicas, WAYS, train)


def differences(replicas: int, names: Iterable[str], train: Callable[[Any, Any, str], Any]) -> dict[str, float | str]:
    """Of what `train(strategy, batch, name)` leaves, from what it leaves on one device; or what was said."""
    tfscale.simulate_replicas(replicas)
    _MADE["dp"] = tfscale.DataParallel(global_batch=11)
    strategy: Any = _MADE["dp"].strategy
    rows = tf.data.Dataset.from_tensor_slices((X[:11], Y[:11])).batch(11)
    (batch,) = strategy.experimental_distribute_dataset(rows)
    whole = tf.constant(X[:11]), tf.constant(Y[:11])
    found: dict[str, float | str] = {}
    for name in names:
        try:
            expected = train(tf.distribute.get_strategy(), whole, name)
            found[name] = float(np.max(np.abs(train(strategy, batch, name) - expected)))
        except tfscale.errors.TfscaleError as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


_MADE: dict[str, tfscale.DataParallel] = {}


def count_replicas() -> Any:
    return tf.distribute.get_strategy().num_replicas_in_sync


def _count_by_data_parallel() -> Any:
    return _MADE["dp"].num_replicas if tf.distribute.has_strategy() else 1


# The weight of a loss, by strategy.
_WEIGHTS: dict[Any, tf.Variable] = {}


def _weight() -> tf.Tensor:
    return tf.convert_to_tensor(_WEIGHTS[tf.distribute.get_strategy()])


# What becomes of the losses of the examples; and whether it is refused, because no replica divides it further.
LOSSES: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "mean": (tf.reduce_mean, True),
    "mean of Keras": (keras.ops.mean, True),
    "mean by the replica's rows": (lambda own: tf.reduce_sum(own) / tf.cast(tf.size(own), tf.float32), True),
    "mean by the rows of its shape": (
        lambda own: keras.ops.sum(own) / keras.ops.cast(tf.shape(own)[0], "float32"),
        True,
    ),
    "mean of columns": (lambda own: tf.reduce_mean(tf.stack([own, 2 * own], 1)), True),
    "mean beside a part": (lambda own: tf.reduce_mean(own) + 0.1 * tf.reduce_mean(own**2), True),
    "mean beside an average": (lambda own: tf.nn.compute_average_loss(own) + 0.5 * tf.reduce_mean(own**2), True),
    "mean beside one over replicas": (
        lambda own: tf.reduce_mean(own) / count_replicas() + 0.5 * tf.reduce_mean(tf.sqrt(own)),
        True,
    ),
    "means over replicas, each by itself": (
        lambda own: tf.reduce_mean(own) / count_replicas() + tf.reduce_mean(tf.sqrt(own) / count_replicas()),
        False,
    ),
    "a tenth of a mean": (lambda own: 0.1 * tf.reduce_mean(own), True),
    "ten means, negative": (lambda own: -tf.reduce_mean(own) * 10.0, True),
    "a seventh of a mean": (lambda own: tf.reduce_mean(own) / 7.0, True),
    "half a mean": (lambda own: 0.5 * tf.reduce_mean(own), True),
    "a third of a mean": (lambda own: tf.reduce_mean(own) / 3.0, True),
    "mean by a weight that is learned": (lambda own: tf.exp(-_weight()) * tf.reduce_mean(own), True),
    "mean over a variable": (lambda own: tf.reduce_mean(own) / (1.0 + _weight()), True),
    "sum by a weight that is learned": (lambda own: tf.exp(-_weight()) * tf.reduce_sum(own) / 11.0, False),
    "mean times own rows of the batch": (
        lambda own: tf.reduce_mean(own) * tf.cast(tf.size(own), tf.float32) / 11.0,
        False,
    ),
    "mean over replicas": (lambda own: tf.reduce_mean(own) / count_replicas(), False),
    "mean over DataParallel's replicas": (lambda own: tf.reduce_mean(own) / _count_by_data_parallel(), False),
    "mean of what was divided": (lambda own: tf.reduce_mean(own / count_replicas()), False),
    "mean over a tensor of replicas": (lambda own: tf.reduce_mean(own) / tf.cast(count_replicas(), tf.float32), False),
    "mean times a part": (lambda own: tf.reduce_mean(own) * (1.0 / count_replicas()), False),
    "average": (tf.nn.compute_average_loss, False),
    "average over the batch": (lambda own: tf.nn.compute_average_loss(own, global_batch_size=11), False),
    "sum": (tf.reduce_sum, False),
    "sum over the batch": (lambda own: tf.reduce_sum(own) / 11.0, False),
    "sum over rows times replicas": (
        lambda own: tf.reduce_sum(own) / tf.cast(tf.shape(own)[0] * count_replicas(), tf.float32),
        False,
    ),
    "each over a number": (lambda own: tf.reduce_sum(own / 5.0) / 11.0, False),
    "each over its own": (lambda own: tf.reduce_sum(own / (1.0 + tf.stop_gradient(own))) / 11.0, False),
    "sum of means by a matrix": (
        lambda own: tf.reduce_sum(tf.stack([own, 2 * own, own, own], 1) @ (tf.ones((4, 4)) / 4.0)) / 11.0,
        False,
    ),
    "sum of means over columns": (lambda own: tf.reduce_sum(tf.reduce_mean(tf.stack([own, 2 * own], 1), 1)), False),
}


def _square(kernel: Any) -> Any:
    return 0.1 * tf.reduce_sum(kernel**2)


def _counted(own: Any) -> Any:
    """How many replicas there are, reckoned by what each of them sends."""
    context = tf.distribute.get_replica_context()
    return tf.cast(context.all_reduce("SUM", tf.ones_like(own)) if context.num_replicas_in_sync > 1 else 1.0, own.dtype)


# A loss that is a part of a sum, and one of the weights; and whether it is refused, because nobody divides that.
PENALTIES: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "as it is": (lambda own, kernel: own + _square(kernel), True),
    "of Keras": (lambda own, kernel: own + keras.regularizers.L2(0.1)(kernel), True),
    "of its length": (lambda own, kernel: own + 0.1 * tf.nn.l2_loss(kernel), True),
    "with a sign": (lambda own, kernel: own - 0.5 * tf.reduce_mean(tf.abs(kernel)), True),
    "as it is, all halved": (lambda own, kernel: 0.5 * (own + _square(kernel)), True),
    "scaled": (lambda own, kernel: own + tf.nn.scale_regularization_loss(_square(kernel)), False),
    "over replicas": (lambda own, kernel: own + _square(kernel) / count_replicas(), False),
    # A plain number may be any other: a tenth on ten replicas, or the mean of three penalties on three.
    "over a plain number": (lambda own, kernel: own + _square(kernel) / int(count_replicas()), True),
    "times a plain number": (lambda own, kernel: own + (1 / int(count_replicas())) * _square(kernel), True),
    "all over replicas": (lambda own, kernel: (own * count_replicas() + _square(kernel)) / count_replicas(), False),
    "by rows of all": (lambda own, kernel: own + _square(kernel) / _counted(own), False),
    "of nothing": (lambda own, kernel: own + 0.0 * tf.reduce_sum(kernel), False),
    "by nothing": (lambda own, kernel: own + 0.0 * tf.nn.l2_loss(kernel) + 0.0 * _square(kernel), False),
}


# Losses of rows that are linear in a bias: of its gradient nothing but their number is of the rows.
LINEAR: dict[str, tuple[Callable[[Any, Any, Any], Any], bool]] = {
    "a critic": (lambda x, kernel, bias: tf.reduce_sum(x @ kernel + bias) / 11.0, False),
    "a critic of two": (
        lambda x, kernel, bias: (tf.reduce_sum(x @ kernel + bias) - tf.reduce_sum(tf.tanh(x) @ kernel + bias)) / 11.0,
        False,
    ),
    "averaged": (lambda x, kernel, bias: tf.nn.compute_average_loss((x @ kernel + bias)[:, 0]), False),
    "averaged over the batch": (
        lambda x, kernel, bias: tf.nn.compute_average_loss(
            tf.nn.bias_add(x @ kernel, tf.convert_to_tensor(bias))[:, 1], global_batch_size=11
        ),
        False,
    ),
    "beside a penalty": (lambda x, kernel, bias: tf.reduce_sum(x @ kernel + bias) / 11.0 + _square(kernel), True),
    "beside a penalty on it": (lambda x, kernel, bias: tf.reduce_sum(x @ kernel + bias) / 11.0 + _square(bias), True),
}


def linear(replicas: int) -> dict[str, float | str]:
    """As `losses`, of losses that are linear in a bias."""

    def train(strategy: Any, batch: Any, name: str) -> np.ndarray:
        loss_of = LINEAR[name][0]
        return trained(strategy, batch, lambda gradients, _: gradients, lambda x, _, *weights: loss_of(x, *weights))

    return differences(replicas, LINEAR, train)


def penalties(replicas: int) -> dict[str, float | str]:
    """As `losses`, of a loss beside that of the examples."""

    def train(strategy: Any, batch: Any, name: str) -> np.ndarray:
        return trained_by(strategy, batch, lambda own: tf.reduce_sum(own) / 11.0, "known", PENALTIES[name][0])

    return differences(replicas, PENALTIES, train)


def losses(replicas: int, shapes: str) -> dict[str, float | str]:
    """As `ways`, of the form of the loss.

    Args:
        replicas: Of this process.
        shapes: "known" where the step is traced for so many rows, "open" for any number.
    """
    return differences(
        replicas, LOSSES, lambda strategy, batch, name: trained_by(strategy, batch, LOSSES[name][0], shapes)
    )


def trained_by(
    strategy: Any,
    batch: Any,
    loss_of: Callable[[Any], Any],
    shapes: str,
    beside: Callable[[Any, Any], Any] = lambda own, _: own,
    change: Callable[[Any], Any] | None = None,
) -> np.ndarray:
    with strategy.scope():
        kernel = keras.Variable(X[:5, :2])
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build([kernel])
        _WEIGHTS[strategy] = tf.Variable(0.25)

    def step(x: Any, y: Any) -> Any:
        if shapes == "open":
            x, y = (tf.boolean_mask(each, tf.range(tf.shape(each)[0]) < 100) for each in (x, y))
        with tf.GradientTape() as tape:
            loss = loss_of(tf.reduce_mean(tf.square(y - tf.tanh(x @ kernel)), -1))
            loss = beside(loss, tf.convert_to_tensor(kernel))
        gradients = tape.gradient(loss, [kernel.value])
        optimizer.apply(change(gradients) if change else gradients, [kernel])

    tf.function(lambda *args: strategy.run(step, args=args))(*batch)
    return np.array(kernel)


def _alone(name: str) -> Callable[[Any], Any]:
    """On one device what is summed is what it was."""
    return _global if "clipped" in name else lambda gradients: gradients


def means(replicas: int) -> dict[str, float]:
    """By how much the mean misses that of the batch that a replica asks its context for."""
    tfscale.simulate_replicas(replicas)
    dp = tfscale.DataParallel(global_batch=8)
    strategy, rows = dp.strategy, X[:8]

    def step(own: Any) -> Any:
        context = tf.distribute.get_replica_context()
        one = context.all_reduce("MEAN", tf.reduce_mean(own))
        several = context.all_reduce(tf.distribute.ReduceOp.MEAN, {"squares": tf.reduce_mean(own**2)})
        return one, several["squares"], context.all_reduce("SUM", tf.reduce_sum(own))

    (batch,) = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(rows).batch(8))
    expected = rows.mean(), (rows**2).mean(), rows.sum()
    found = {}
    values = tf.function(lambda: strategy.run(step, (batch,)))()
    for name, value, right in zip(("mean", "in a dict", "sum"), values, expected, strict=True):
        found[name] = max(abs(float(each) - float(right)) for each in strategy.experimental_local_results(value))
    return found


def own_function(way: str, num_replicas: int) -> Any:
    """A loop whose step is in a `tf.function` that gets the rows, beside something that is sent before the gradients.

    Args:
        way: "given" to `strategy.run`, called by what is "traced" there, or by what is run "eagerly".
        num_replicas: Of this process.

    Returns:
        How far weights and losses are from those of one device, or the text of an error of tfscale.
    """
    tfscale.simulate_replicas(num_replicas)
    expected = _run_own_function(None, "given")
    try:
        found = _run_own_function(tfscale.DataParallel(global_batch=12), way)
    except ModelError as error:
        return str(error)
    return max(float(np.max(np.abs(own - one))) for own, one in zip(found, expected, strict=True))


def own_function_on_workers(way: str) -> Any:
    """As `own_function`; a worker must not compute before its strategy is there."""
    found = _run_own_function(tfscale.DataParallel(global_batch=12), way)
    return [each.tolist() for each in found]


def own_function_on_one_device() -> Any:
    """What both are to give."""
    return [each.tolist() for each in _run_own_function(None, "given")]


def _run_own_function(dp: Any, way: str) -> list[np.ndarray]:
    layers = keras.layers
    with contextlib.nullcontext() if dp is None else dp.scope():
        keras.utils.set_random_seed(0)
        statistics = layers.BatchNormalization(synchronized=True)
        model = keras.Sequential([keras.Input((3,)), layers.Dense(4), statistics, layers.Dense(2)])
        optimizer = keras.optimizers.SGD(0.1)

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            squares = tf.square(y - model(x, training=True))
            loss = tf.nn.compute_average_loss(tf.reduce_mean(squares, -1))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    given = step if way == "given" else lambda x, y: step(x, y)

    def distributed(x: Any, y: Any) -> Any:
        return given(x, y) if dp is None else dp.strategy.reduce("SUM", dp.strategy.run(given, args=(x, y)), axis=None)

    run = tf.function(distributed) if way == "traced" else distributed
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 3)).astype("float32"), rng.normal(size=(30, 2)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices(rows).batch(12)
    losses = [float(run(*each)) for each in (data if dp is None else dp.strategy.experimental_distribute_dataset(data))]
    return [np.array(losses), *map(np.array, model.get_weights())]

"""Run in a fresh process: loops by hand, and what they make of sums over their replicas' rows before these are added.

Of 8 rows on three replicas. Each case is the loss of a step, of the targets and outputs of a layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale

_RANDOM = np.random.default_rng(0)
ROWS, TARGETS = (_RANDOM.normal(size=(8, size)).astype("float32") for size in (5, 2))
BATCH = len(ROWS)
Loss = Callable[[Any, Any, Any], Any]


def _each(targets: Any, outputs: Any) -> Any:
    return tf.reduce_mean(tf.square(targets - outputs), axis=-1)


def _dice(targets: Any, outputs: Any, replicas: Any) -> Any:
    chosen = tf.sigmoid(outputs)
    return -tf.reduce_sum(chosen * targets) / (tf.reduce_sum(chosen) + 9.0) / replicas


def _pairs(targets: Any, outputs: Any, replicas: Any) -> Any:
    each = tf.range(tf.shape(outputs)[0])
    scores = tf.matmul(outputs, targets, transpose_b=True)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(each, scores)) / replicas


def _weighted(targets: Any, outputs: Any, replicas: Any) -> Any:
    weights = tf.abs(targets[:, 0])
    return tf.reduce_sum(weights * _each(targets, outputs)) / tf.reduce_sum(weights) / replicas


def _ragged(targets: Any, outputs: Any) -> Any:
    lengths = 1 + tf.cast(targets[:, 0] > 0, tf.int32)
    return tf.RaggedTensor.from_tensor(tf.square(targets - outputs), lengths=lengths)


def _masked(targets: Any, outputs: Any, replicas: Any) -> Any:
    lengths = 1 + tf.cast(targets[:, 0] > 0, tf.int64)
    ragged = _ragged(targets, outputs)
    mask = tf.cast(tf.sequence_mask(lengths), outputs.dtype)
    return tf.reduce_mean(tf.reduce_sum(ragged.to_tensor() * mask, -1) / tf.reduce_sum(mask, -1)) / replicas


def _repeated(targets: Any, outputs: Any, replicas: Any) -> Any:
    times = 1 + tf.cast(targets[:, 0] > 0, tf.int32)
    return tf.reduce_sum(tf.repeat(tf.square(outputs), times, axis=0)) / BATCH


def _lengths_of_texts(targets: Any, outputs: Any, replicas: Any) -> Any:
    parts = tf.strings.split(tf.strings.as_string(targets[:, 0], precision=3), "1")
    return tf.reduce_sum(_each(targets, outputs) * tf.cast(parts.row_lengths(), outputs.dtype)) / BATCH


def _mapped(targets: Any, outputs: Any, replicas: Any) -> Any:
    rows = tf.vectorized_map(lambda row: row / (1.0 + tf.norm(row)), outputs)
    return tf.reduce_sum(_each(targets, rows)) / BATCH


def _largest_whole(targets: Any, outputs: Any, replicas: Any) -> Any:
    largest = tf.cast(tf.reduce_max(tf.cast(10 * targets, tf.int32)), outputs.dtype)
    return largest * tf.reduce_mean(_each(targets, outputs)) / replicas


def _longest(targets: Any, outputs: Any, replicas: Any) -> Any:
    longest = tf.reduce_max(tf.cast(4 * tf.abs(targets[:, 0]), tf.int32))
    return tf.reduce_mean(tf.reduce_sum(outputs[:, :1] * tf.ones([1, longest]), -1)) / replicas


def _divided_once_more(targets: Any, outputs: Any, replicas: Any) -> Any:
    return keras.losses.MeanSquaredError()(targets, outputs) / replicas


def _chosen(targets: Any, outputs: Any, replicas: Any) -> Any:
    return tf.reduce_mean(tf.boolean_mask(_each(targets, outputs), targets[:, 0] > 0)) / replicas


def _by_class(targets: Any, outputs: Any, replicas: Any) -> Any:
    classes = tf.cast(targets[:, 0] > 0, tf.int32)
    weights = tf.abs(targets[:, 1])
    totals = tf.gather(tf.math.unsorted_segment_sum(weights, classes, 2), classes)
    return tf.reduce_sum(_each(targets, outputs) * weights * totals) / BATCH


def _ranked(targets: Any, outputs: Any, replicas: Any) -> Any:
    ranks = tf.argsort(tf.argsort(targets[:, 0]))
    return tf.reduce_sum(_each(targets, outputs) * tf.cast(ranks, outputs.dtype)) / BATCH


def _mixed(targets: Any, outputs: Any, replicas: Any) -> Any:
    return tf.reduce_sum(_each(0.7 * targets + 0.3 * targets[::-1], outputs)) / BATCH


def _products_of_pairs(targets: Any, outputs: Any, replicas: Any) -> Any:
    return tf.reduce_sum(tf.einsum("bi,ci->bc", outputs, targets)) / BATCH


def _along_units(targets: Any, outputs: Any, replicas: Any) -> Any:
    order = tf.cumsum(tf.nn.softmax(outputs), axis=1)[:, ::-1] + tf.sort(tf.roll(outputs, 1, axis=1))
    return tf.reduce_sum(order * tf.einsum("bi,bi->b", outputs, targets)[:, None]) / BATCH


def _kept_over_rows(targets: Any, outputs: Any, replicas: Any) -> Any:
    kept = tf.scan(lambda kept, row: 0.5 * kept + 0.5 * row, outputs)
    return tf.reduce_sum(_each(targets, kept)) / BATCH


def _kept_by_number(targets: Any, outputs: Any, replicas: Any) -> Any:
    kept = 0.0
    for number in tf.range(tf.shape(outputs)[0]):
        kept = 0.5 * kept + outputs[number, 0] * targets[number, 0]
    return kept / BATCH


def _largest_in_turn(targets: Any, outputs: Any, replicas: Any) -> Any:
    return tf.foldl(tf.maximum, _each(targets, outputs), initializer=0.0) / replicas


def _root_in_turn(targets: Any, outputs: Any, replicas: Any) -> Any:
    loss = 0.0
    for unit in tf.range(2):
        loss += tf.sqrt(tf.reduce_mean(tf.square(targets[:, unit] - outputs[:, unit])))
    return loss / replicas


def _learned_in_turn(targets: Any, outputs: Any, replicas: Any) -> Any:
    kernel = tf.ones([2, 2])
    for _ in tf.range(2):
        kernel -= 0.1 * tf.matmul(outputs, tf.matmul(outputs, kernel) - targets, transpose_a=True)
    return tf.reduce_sum(_each(targets, tf.matmul(outputs, kernel))) / BATCH


def _until_small(targets: Any, outputs: Any, replicas: Any) -> Any:
    state, number = outputs, 0
    while number < 9 and tf.reduce_max(tf.abs(state)) > 0.3:
        state, number = 0.7 * state, number + 1
    return tf.reduce_sum(_each(targets, state)) / BATCH


def _mean_in_turn(targets: Any, outputs: Any, replicas: Any) -> Any:
    loss, state = 0.0, tf.zeros_like(outputs[:, 0])
    for unit in tf.range(2):
        state = tf.tanh(0.5 * state + outputs[:, unit])
        loss += tf.reduce_mean(tf.square(targets[:, unit] - state))
    return loss / replicas


def _row_by_row(targets: Any, outputs: Any, replicas: Any) -> Any:
    total = 0.0
    for number in tf.range(tf.shape(outputs)[0]):
        distance = tf.norm(outputs[number] - targets[number])
        total += distance / (1.0 + distance)
    return total / BATCH


def _mapped_in_turn(targets: Any, outputs: Any, replicas: Any) -> Any:
    rows = tf.map_fn(lambda row: row / (1.0 + tf.norm(row)), outputs)
    return tf.foldl(tf.add, _each(targets, rows), initializer=0.0) / BATCH


BENT: dict[str, Loss] = {
    "what is kept from row to row": _kept_over_rows,
    "what is kept from number to number": _kept_by_number,
    "the largest, row by row": _largest_in_turn,
    "a root of a mean, unit by unit": _root_in_turn,
    "weights that a loop learns of all rows": _learned_in_turn,
    "a loop that ends by the largest": _until_small,
    "a mean of chosen rows": _chosen,
    "a total by classes, for each row": _by_class,
    "ranks of rows": _ranked,
    "rows mixed with the last first": _mixed,
    "pairs of rows by einsum": _products_of_pairs,
    "rows beside the next": lambda y, z, n: tf.reduce_sum(z * tf.roll(y, 1, axis=0)) / BATCH,
    "rows beside the reversed": lambda y, z, n: tf.reduce_sum(z * tf.reverse(y, [0])) / BATCH,
    "a softmax over the rows": lambda y, z, n: tf.reduce_sum(y * tf.nn.softmax(z, axis=0)) / BATCH,
    "a running sum over the rows": lambda y, z, n: tf.reduce_sum(y * tf.cumsum(z, axis=0)) / BATCH,
    "a root of a mean": lambda y, z, n: tf.sqrt(tf.reduce_mean(_each(y, z))) / n,
    "a logarithm of a mean": lambda y, z, n: tf.math.log(tf.reduce_mean(_each(y, z))) / n,
    "a mean by weights": _weighted,
    "a quotient of sums": _dice,
    "a product of means": lambda y, z, n: tf.reduce_mean(_each(y, z)) * tf.reduce_mean(tf.abs(z)) / n,
    "a variance over the batch": lambda y, z, n: -tf.reduce_mean(tf.math.reduce_variance(z, axis=0)) / n,
    "rows of which their mean is taken": lambda y, z, n: tf.reduce_sum(tf.square(z - tf.reduce_mean(z, 0))) / BATCH,
    "products of units": lambda y, z, n: tf.reduce_sum(tf.square(tf.matmul(z, z, transpose_a=True))) / BATCH,
    "pairs of rows": _pairs,
    "the largest of the batch": lambda y, z, n: tf.reduce_max(_each(y, z)) / n,
    "the largest whole number": _largest_whole,
    "a mask up to the longest": _masked,
    "what is added up over the longest": _longest,
    "a limited mean": lambda y, z, n: tf.maximum(tf.reduce_mean(_each(y, z)), 0.1) / n,
}
TWICE: dict[str, Loss] = {
    "a loss of Keras": _divided_once_more,
    "a mean": lambda y, z, n: 0.5 * (tf.reduce_mean(_each(y, z)) / n) / n,
}
SUMS: dict[str, Loss] = {
    "a mean": lambda y, z, n: tf.reduce_mean(_each(y, z)) / n,
    "a loss of Keras": lambda y, z, n: keras.losses.MeanSquaredError()(y, z),
    "two losses": lambda y, z, n: keras.losses.MeanSquaredError()(y, z) + tf.reduce_mean(tf.abs(z)) / n,
    "means of ragged rows": lambda y, z, n: tf.reduce_mean(tf.reduce_mean(_ragged(y, z), axis=1)) / n,
    "rows that are repeated": _repeated,
    "lengths of texts": _lengths_of_texts,
    "a function of each row": _mapped,
    "a function of each row, one after the other": _mapped_in_turn,
    "a sum row by row": _row_by_row,
    "a mean, unit by unit": _mean_in_turn,
    "what is computed anew on the way back": lambda y, z, n: (
        tf.reduce_sum(tf.square(y - tf.recompute_grad(tf.tanh)(z))) / BATCH
    ),
    "a root of each row": lambda y, z, n: tf.reduce_sum(tf.sqrt(1.0 + _each(y, z))) / BATCH,
    "a quotient in each row": lambda y, z, n: tf.nn.compute_average_loss(keras.losses.cosine_similarity(y, z)),
    "a scalar beside each row": lambda y, z, n: tf.reduce_mean(_each(y, z) + tf.reduce_mean(tf.square(z))) / n,
    "a difference of means": lambda y, z, n: (tf.reduce_mean(z[:, 0]) - tf.reduce_mean(_each(y, z))) / n,
    "the largest in each row": lambda y, z, n: tf.reduce_mean(tf.reduce_max(z, axis=1)) / n,
    "a sum over chosen rows": lambda y, z, n: tf.reduce_sum(tf.boolean_mask(_each(y, z), y[:, 0] > 0)) / BATCH,
    "along the units of each row": _along_units,
    "of all rows": lambda y, z, n: tf.sqrt(tf.reduce_mean(tfscale.gather_rows(_each(y, z)))) / n,
}


ORDERS = (
    "rows beside the next",
    "a softmax over the rows",
    "a running sum over the rows",
    "along the units of each row",
)


FEW_SUMS = ("a function of each row", "a quotient in each row", "along the units of each row")


def found_alike() -> dict[str, str | float]:
    """As `found`, of two rows on each replica, which are as long: lengths do not tell rows from units."""
    tfscale.simulate_replicas(4)
    dp = tfscale.DataParallel(global_batch=BATCH)
    kinds = {"bent": BENT, "sums": SUMS}
    return {f"{kind}: {name}": _found(dp, loss) for kind, cases in kinds.items() for name, loss in cases.items()}


def found_in_function(source: str) -> dict[str, str | float]:
    """As `found`, of data that the `tf.function` around `strategy.run` reads: it does not know of how many rows."""
    tfscale.simulate_replicas(3)
    dp = tfscale.DataParallel(global_batch=BATCH)
    return {name: _found(dp, (BENT | SUMS)[name], source=source) for name in (*ORDERS, "a mean of chosen rows")}


def found_of_few() -> dict[str, str | float]:
    """As `found`, of two rows on three replicas, of which one has none."""
    tfscale.simulate_replicas(3)
    dp = tfscale.DataParallel(global_batch=BATCH)

    def weighed(targets: Any, outputs: Any, replicas: Any) -> Any:
        return tf.reduce_mean(_each(targets, outputs)) * tf.cast(tf.shape(targets)[0], tf.float32) / 2

    return {"weighed by rows": _found(dp, weighed, 2), "a mean": _found(dp, SUMS["a mean"], 2)}


def found_of_four() -> dict[str, str | float]:
    """As `found`, of four rows on three replicas, of which two have one."""
    tfscale.simulate_replicas(3)
    dp = tfscale.DataParallel(global_batch=BATCH)
    cases = {**{name: SUMS[name] for name in FEW_SUMS}, "a root of a mean": BENT["a root of a mean"]}
    return {name: _found(dp, loss, 4) for name, loss in cases.items()}


def found_of_one() -> dict[str, str | float]:
    """As `found`, of one row on workers of one replica, of which all but the first have none."""
    dp = tfscale.DataParallel(global_batch=BATCH)
    # Of one row `tf.vectorized_map` computes as of a whole batch, and other workers' graphs are not there to tell.
    return {name: _found(dp, SUMS[name], 1) for name in SUMS if name != "a function of each row"}


def found() -> dict[str, str | float]:
    """Of each case the error; or by how much its step is not that of one replica."""
    tfscale.simulate_replicas(3)
    dp = tfscale.DataParallel(global_batch=BATCH)
    cases = {"bent": BENT, "twice": TWICE, "sums": SUMS}
    of_step = {f"{kind}: {name}": _found(dp, loss) for kind, losses in cases.items() for name, loss in losses.items()}
    return of_step | {f"twice, in a function: {name}": _found(dp, loss, is_inside=True) for name, loss in TWICE.items()}


def _found(dp: Any, loss: Loss, size: int = BATCH, *, is_inside: bool = False, source: str = "given") -> str | float:
    start = np.linspace(-1, 1, 10, dtype="float32").reshape(5, 2)
    with dp.scope():
        kernel = tf.Variable(start)
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build([kernel])

    def gradient_of(x: Any, y: Any, replicas: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(y, tf.tanh(tf.matmul(x, kernel)), replicas)
        return tape.gradient(value, kernel)

    def step(x: Any, y: Any) -> None:
        optimizer.apply([gradient_of(x, y, dp.strategy.num_replicas_in_sync)], [kernel])

    run_step = tf.function(step) if is_inside else step

    @tf.function
    def call(x: Any, y: Any) -> None:
        dp.strategy.run(lambda *rows: run_step(*rows), args=(x, y))

    batches = tf.data.Dataset.from_tensor_slices((ROWS[:size], TARGETS[:size])).batch(size)
    distributed = dp.strategy.experimental_distribute_dataset(batches)
    try:
        if source == "read":
            tf.function(lambda iterator: dp.strategy.run(run_step, args=next(iterator)))(iter(distributed))
        elif source == "captured":
            [batch] = distributed
            tf.function(lambda: dp.strategy.run(run_step, args=batch))()
        else:
            call(*next(iter(distributed)))
    except tfscale.ModelError as error:
        return str(error)
    outputs = tf.Variable(start)
    with tf.GradientTape() as tape:
        value = _on_one(loss, outputs, size)
    return float(np.abs(kernel.numpy() - (start - 0.1 * tape.gradient(value, outputs))).max())


def _on_one(loss: Loss, kernel: Any, size: int) -> Any:
    return loss(tf.constant(TARGETS[:size]), tf.tanh(tf.matmul(tf.constant(ROWS[:size]), kernel)), 1)

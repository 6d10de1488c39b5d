"""Models that draw one thing for the whole batch. Every function runs in its own process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.listening import listening

BATCH = 8
X = np.random.default_rng(0).normal(size=(29, 8, 8, 1)).astype("float32")
Y = X.mean((1, 2))


class Drawing(keras.Model):
    """To its loss is added what a function draws."""

    def __init__(self, draw: Callable[[Any, Any, Any], Any], **options: Any) -> None:
        super().__init__(**options)
        self.draw, self.seeds = draw, keras.random.SeedGenerator(5)

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *args: Any, **kwargs: Any) -> Any:
        return tf.reduce_mean(tf.square(y_pred - y)) + self.draw(self, y_pred, y)


def _scale(model: Any, predicted: Any, y: Any) -> Any:
    return keras.random.uniform((), seed=model.seeds) * tf.reduce_mean(predicted * y)


def _noise_on_weights(model: Any, predicted: Any, y: Any) -> Any:
    kernel = model.layers[-1].kernel
    noisy = kernel + 0.1 * keras.random.normal(kernel.shape, seed=model.seeds)
    return tf.reduce_mean(predicted) * tf.reduce_sum(noisy * keras.random.dropout(kernel, 0.5, seed=model.seeds))


def _choice(model: Any, predicted: Any, y: Any) -> Any:
    place = keras.random.categorical(tf.zeros((5,))[None], 1, seed=model.seeds)[0, 0]
    order = keras.random.shuffle(tf.range(5.0), seed=model.seeds)
    number = keras.random.randint((1,), 0, 3, seed=model.seeds)[0]
    return tf.reduce_mean(predicted) * (
        tf.gather([0.1, 0.5, 1.0, 1.5, 2.0], place) + order[0] + tf.cast(number, "float32")
    )


def _without_a_seed(model: Any, predicted: Any, y: Any) -> Any:
    return keras.random.uniform(()) * tf.reduce_mean(predicted * y)


def _spread(predicted: Any) -> Any:
    return tf.reduce_mean(tf.square(predicted - tf.reduce_mean(predicted, axis=0)))


def _gate(model: Any, predicted: Any, y: Any) -> Any:
    drawn = keras.random.uniform((), seed=model.seeds)
    return tf.cond(drawn < 0.3, lambda: _spread(predicted), lambda: 0.0)


def _third_of_kinds(model: Any, predicted: Any, y: Any) -> Any:
    return tf.cast(keras.random.randint((), 0, 4, seed=model.seeds) == 3, "float32") * _spread(predicted)


PROGRAMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a scale": _scale,
    "noise on weights": _noise_on_weights,
    "a choice": _choice,
    "without a seed": _without_a_seed,
    "a gate behind which rows meet": _gate,
    "a kind in which rows meet": _third_of_kinds,
}


DIVIDED = ("a scale", "without a seed", "noise on weights", "Keras's RandomCrop")
"""Those in which no rows meet."""
WITH_ALL_ROWS = "a kind in which rows meet"
"""One that wants all rows at the same time."""


def _by_tensorflow(model: Any, predicted: Any, y: Any) -> Any:
    return tf.random.uniform(()) * tf.reduce_mean(predicted * y)


def _by_the_next_seed(model: Any, predicted: Any, y: Any) -> Any:
    return tf.random.stateless_uniform((), model.seeds.next()) * tf.reduce_mean(predicted * y)


def _for_each_row(model: Any, predicted: Any, y: Any) -> Any:
    return tf.reduce_mean(tf.random.uniform(tf.shape(predicted)) * predicted)


def _gate_by_tensorflow(model: Any, predicted: Any, y: Any) -> Any:
    return tf.cond(tf.random.uniform(()) < 0.3, lambda: _spread(predicted), lambda: 0.0)


def _net(draw: Any = None, **options: Any) -> keras.Model:
    inputs = keras.Input((8, 8, 1))
    hidden = keras.layers.Flatten()(keras.layers.RandomCrop(5, 5, seed=3)(inputs) if draw is None else inputs)
    outputs = keras.layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(1))(hidden)
    return keras.Model(inputs, outputs) if draw is None else Drawing(draw, inputs=inputs, outputs=outputs, **options)


def _trained(
    dp: Any, draw: Any, drop_remainder: bool = False, run_eagerly: bool = False
) -> tuple[list[Any], list[float]]:
    keras.utils.set_random_seed(1)
    with contextlib.nullcontext() if dp is None else dp.scope():
        model = _net(draw)
        model.compile(keras.optimizers.SGD(0.05), None if draw else "mse", run_eagerly=run_eagerly)
        if dp is not None:
            dp.prepare(model)
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH, drop_remainder=drop_remainder)
    history = model.fit(data, epochs=1 if run_eagerly else 3, shuffle=False, verbose=0)
    return model.get_weights(), history.history["loss"]


def equal(options: dict[str, Any], drop_remainder: bool = False) -> dict[str, tuple[Any, Any]]:
    """By program: what three replicas train and log, and one device.

    Args:
        options: Of `DataParallel`, beside the batch.
        drop_remainder: Whether each batch has one known size.
    """
    tfscale.simulate_replicas(options.pop("replicas", 3))
    dp = tfscale.DataParallel(global_batch=BATCH, **options)
    programs = {**PROGRAMS, "Keras's RandomCrop": None}
    if options:
        programs = {name: draw for name, draw in programs.items() if name in DIVIDED}
    return {
        name: (_trained(dp, draw, drop_remainder), _trained(None, draw, drop_remainder))
        for name, draw in programs.items()
    }


def eagerly() -> dict[str, tuple[Any, Any, list[str]]]:
    """By program, run eagerly: what three replicas train and log, or their error; one device; what is logged."""
    tfscale.simulate_replicas(3)
    dp = tfscale.DataParallel(global_batch=BATCH)
    found = {}
    for name in (*DIVIDED, WITH_ALL_ROWS):
        ours: Any
        draw = PROGRAMS.get(name)
        with listening() as lines:
            try:
                ours = _trained(dp, draw, run_eagerly=True)
            except tfscale.ParityError as error:
                ours = str(error)
        found[name] = ours, _trained(None, draw, run_eagerly=True), lines
    return found


def said() -> dict[str, str]:
    """By program: the error, or what is logged of draws."""
    tfscale.simulate_replicas(3)
    dp = tfscale.DataParallel(global_batch=BATCH)
    found = {}
    programs = {
        "by TensorFlow": _by_tensorflow,
        "by the next seed": _by_the_next_seed,
        "for each row": _for_each_row,
        "a gate by TensorFlow": _gate_by_tensorflow,
        "by Keras": _scale,
    }
    for name, draw in programs.items():
        with listening() as lines:
            try:
                _trained(dp, draw)
                found[name] = "\n".join(line for line in lines if "draws something" in line)
            except tfscale.ParityError as error:
                found[name] = str(error)
    return found


ROWS = X.reshape(len(X), -1)[:27]


def loops(is_eager: bool) -> dict[Any, tuple[list[float], list[float]]]:
    """What loops by hand make of what they draw for all examples of a batch: on three replicas, and on one device.

    By the shape of what is drawn, and by whether each batch has one known size, of which a replica has four rows.

    Args:
        is_eager: Whether the loops have no graph.
    """
    tfscale.simulate_replicas(3)
    strategy: Any = tfscale.DataParallel(global_batch=12).strategy
    shapes: Any = ((), (5, 3), (4, 2), (8, 3))
    return {
        (shape, is_known): _loop(strategy, shape, is_known, is_eager) for shape in shapes for is_known in (True, False)
    }


def _loop(strategy: Any, shape: tuple[int, ...], is_known: bool, is_eager: bool) -> tuple[list[float], list[float]]:
    with strategy.scope():
        seeds = keras.random.SeedGenerator(5)
    times = np.arange(1, 1 + np.prod(shape, dtype=int)).reshape(shape).astype("float32")

    def step(rows: Any) -> Any:
        return tf.reduce_sum(rows) * tf.reduce_sum(times * keras.random.normal(shape, seed=seeds))

    def run(rows: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(step, args=(rows,)), axis=None)

    traced = run if is_eager else tf.function(run)
    batches = tf.data.Dataset.from_tensor_slices(ROWS).batch(12, drop_remainder=is_known)
    ours = [float(traced(rows)) for rows in strategy.experimental_distribute_dataset(batches)]
    plain = keras.random.SeedGenerator(5)
    expected = [float(np.sum(rows) * np.sum(times * keras.random.normal(shape, seed=plain))) for rows in batches]
    return ours, expected


def rows_of_loop() -> list[Any]:
    """What three replicas draw for rows of which the number is known, one of them asked for in Python."""
    tfscale.simulate_replicas(3)
    strategy: Any = tfscale.DataParallel(global_batch=12).strategy
    with strategy.scope():
        seeds = keras.random.SeedGenerator(5)
    steps = (
        lambda rows: keras.random.normal(keras.ops.shape(rows), seed=seeds),
        lambda rows: keras.random.normal((rows.shape[0], 4), seed=seeds),
    )
    batches = tf.data.Dataset.from_tensor_slices(ROWS).batch(12, drop_remainder=True)
    found = []
    for step in steps:
        run = tf.function(lambda rows, step=step: strategy.run(step, args=(rows,)))
        rows = next(iter(strategy.experimental_distribute_dataset(batches)))
        found.append(np.concatenate([each.numpy() for each in strategy.experimental_local_results(run(rows))]))
    return found


def on_workers() -> dict[str, tuple[Any, Any]]:
    """What noise on weights makes of batches of one size on two workers, and on one device."""
    dp = tfscale.DataParallel(global_batch=BATCH)
    programs = {"noise on weights": _noise_on_weights, "a choice": _choice}
    return {name: (_trained(dp, draw, True), _trained(None, draw, True)) for name, draw in programs.items()}

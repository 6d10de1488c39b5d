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


SINGLE = ("a scale", "without a seed")
"""Those that draw single numbers, and let no rows meet."""


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


def _trained(dp: Any, draw: Any, drop_remainder: bool = False) -> tuple[list[Any], list[float]]:
    keras.utils.set_random_seed(1)
    with contextlib.nullcontext() if dp is None else dp.scope():
        model = _net(draw)
        model.compile(keras.optimizers.SGD(0.05), None if draw else "mse")
        if dp is not None:
            dp.prepare(model)
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH, drop_remainder=drop_remainder)
    history = model.fit(data, epochs=3, shuffle=False, verbose=0)
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
        # Of a part the number of rows is known, and not those of the others: what is no single number may be of rows.
        programs = {name: draw for name, draw in programs.items() if name in SINGLE or draw is None}
    if drop_remainder:
        # Weights of twice as many rows as there are examples.
        programs.pop("noise on weights")
    return {
        name: (_trained(dp, draw, drop_remainder), _trained(None, draw, drop_remainder))
        for name, draw in programs.items()
    }


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


def loop() -> tuple[list[float], list[float]]:
    """What a loop by hand draws for its batches on three replicas, and what one device draws."""
    tfscale.simulate_replicas(3)
    strategy: Any = tfscale.DataParallel(global_batch=BATCH).strategy
    with strategy.scope():
        seeds = keras.random.SeedGenerator(5)

    def step(rows: Any) -> Any:
        return tf.reduce_sum(rows) * keras.random.uniform((), seed=seeds)

    run = tf.function(lambda rows: strategy.reduce("SUM", strategy.run(step, args=(rows,)), axis=None))
    data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(X).batch(BATCH))
    ours = [float(run(rows)) for rows in data]
    plain = keras.random.SeedGenerator(5)
    starts = range(0, len(X), BATCH)
    return ours, [float(X[at : at + BATCH].sum() * keras.random.uniform((), seed=plain)) for at in starts]

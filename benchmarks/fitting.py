"""The contenders that call `fit`: tfscale, plain Keras, tf_keras, Keras on JAX.

What is timed is whole epochs, by a callback that looks at the clock only between epochs: per-batch
hooks would cost some contenders more than others.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from benchmarks import models
from benchmarks.contenders import SMALL_MODEL, Contender

# (steps per epoch, epochs) -> seconds of the epochs, last loss.
Block = Callable[[int, int], tuple[float, float]]


def make_block(contender: Contender, model_name: str) -> Block:
    """Builds the model as the contender's user would, ready to train."""
    keras, scope, prepare = _library(contender)
    is_small = model_name == SMALL_MODEL
    keras.utils.set_random_seed(0)
    with scope():
        model = prepare(models.build(model_name, keras))
        model.compile(
            optimizer=models.make_optimizer(keras),
            loss="mse" if is_small else models.make_loss(keras),
            metrics=None if is_small else ["accuracy"],
            steps_per_execution=contender.steps_per_call,
        )
    make_data = models.small_dataset if is_small else models.arrays if contender.library == "jax" else models.dataset
    data = make_data(contender.global_batch)
    return fit_block(keras, model, data)


def fit_block(keras: Any, model: Any, data: Any) -> Block:
    """Makes a block of a compiled model and data without end."""

    class Clock(keras.callbacks.Callback):
        """Notes when each epoch ended."""

        def __init__(self) -> None:
            super().__init__()
            self.times_s: list[float] = []

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            del epoch, logs
            self.times_s.append(time.perf_counter())

    def block(steps_per_epoch: int, epochs: int) -> tuple[float, float]:
        # One more epoch before the clock starts: it makes the input iterator and may trace.
        clock = Clock()
        history = model.fit(data, steps_per_epoch=steps_per_epoch, epochs=epochs + 1, callbacks=[clock], verbose=0)
        return clock.times_s[-1] - clock.times_s[0], history.history["loss"][-1]

    return block


def _library(contender: Contender) -> tuple[Any, Callable[[], Any], Callable[[Any], Any]]:
    """The Keras module, the scope to build in, and what to do to a model."""
    if contender.library == "tfscale":
        import keras

        import tfscale

        data_parallel = tfscale.DataParallel(
            global_batch=contender.global_batch, steps_per_execution=contender.chosen_steps
        )
        return keras, data_parallel.scope, data_parallel.prepare
    if contender.library == "tf_keras":
        import tf_keras as keras
    else:
        import keras
    if not contender.distributed:
        return keras, contextlib.nullcontext, lambda model: model
    if contender.library == "jax":
        keras.distribution.set_distribution(keras.distribution.DataParallel())
        return keras, contextlib.nullcontext, lambda model: model
    import tensorflow as tf

    if contender.num_workers > 1:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    else:
        strategy = tf.distribute.MirroredStrategy()
    return keras, strategy.scope, lambda model: model

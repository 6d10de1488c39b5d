"""Wrong uses on replicas; each returns what was raised. Every function runs in its own process."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.training.models import LABELS, X, classifying, mlp

Raised = tuple[str, str]


def raised_by(function: Callable[[], Any]) -> Raised:
    """Name and text of the error, or of the result where there was none."""
    try:
        with warnings.catch_warnings():
            # Keras says so at the end of any data of unknown length.
            warnings.filterwarnings("ignore", "Your input ran out of data", UserWarning)
            return "no error", repr(function())
    except Exception as error:
        return type(error).__name__, str(error)


def _compiled(dp: Any) -> keras.Model:
    with dp.scope():
        model = dp.prepare(mlp())
        model.compile(**classifying()())
    return model


def _dataset(*batches: int) -> tf.data.Dataset:
    """Batches of the given numbers of rows."""

    def generate() -> Any:
        for rows in batches:
            yield X[:rows], LABELS[:rows]

    signature = (tf.TensorSpec((None, 8), tf.float32), tf.TensorSpec((None,), tf.int32))
    return tf.data.Dataset.from_generator(generate, output_signature=signature)


def batches(num_replicas: int) -> dict[str, Any]:
    """`fit` with batches that are not the global batch, 24; and whether the model still works."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=24)
    model = _compiled(dp)
    model.fit(X[:24], LABELS[:24], verbose=0)
    fit = functools.partial(model.fit, verbose=0, shuffle=False)
    wrong: dict[str, Callable[[], Any]] = {
        "arrays, batch_size too small": lambda: fit(X, LABELS, batch_size=8),
        "arrays, batch_size too large": lambda: fit(X, LABELS, batch_size=32),
        "tf.data, too small": lambda: fit(_sliced(12)),
        "tf.data, too large": lambda: fit(_sliced(48)),
        "one batch, too large": lambda: fit(_dataset(48)),
        "unknown length, too large": lambda: fit(_dataset(25, 24)),
        "PyDataset, too small": lambda: fit(_Batches(12)),
        "PyDataset, too large": lambda: fit(_Batches(48)),
        "generator, too large": lambda: fit(_generated(48), steps_per_epoch=1),
    }
    found: dict[str, Any] = {"unchanged": {}}
    for name, call in wrong.items():
        before = model.get_weights()
        found[name] = raised_by(call)
        found["unchanged"][name] = all(map(np.array_equal, before, model.get_weights()))
    # A later batch is met after good steps: the weights have moved, and the error is the same.
    found["later batch too large"] = raised_by(lambda: fit(_dataset(24, 24, 30)))
    right: dict[str, Callable[[], Any]] = {
        "only batch smaller": lambda: fit(_dataset(10)),
        "last batch smaller": lambda: fit(_dataset(24, 24, 3)),
        "evaluate, another batch": lambda: model.evaluate(_sliced(7), verbose=0),
        "validation of another batch": lambda: fit(X, LABELS, validation_data=_sliced(7)),
        "train_on_batch, another batch": lambda: model.train_on_batch(X[:31], LABELS[:31]),
        "predict, another batch": lambda: len(model.predict(X, batch_size=100, verbose=0)),
    }
    return found | {name: raised_by(call) for name, call in right.items()}


def _generated(rows: int) -> Any:
    yield X[:rows], LABELS[:rows]


class _Batches(keras.utils.PyDataset):
    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return X[: self.rows], LABELS[: self.rows]


def _sliced(batch: int) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, LABELS)).batch(batch)


def lost_scope(num_replicas: int) -> Raised:
    """A search's `build`, which begins anew inside of the scope."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=24)

    def build() -> None:
        with dp.scope():
            keras.backend.clear_session()
            mlp()

    return raised_by(build)


def scopes(num_replicas: int) -> dict[str, Raised]:
    """Things created outside of the scope, and things that are no model."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=24)
    outside = mlp()

    def optimizer_outside() -> Any:
        optimizer = keras.optimizers.Adam()
        optimizer.build(outside.trainable_variables)
        with dp.scope():
            model = dp.prepare(mlp())
            model.compile(optimizer=optimizer, loss="mse")
        return model.fit(X, X[:, :2], verbose=0)

    def metric_outside() -> Any:
        metric = keras.metrics.MeanAbsoluteError()
        with dp.scope():
            model = dp.prepare(mlp())
            model.compile(optimizer="sgd", loss="mse", metrics=[metric])
        return model.fit(X, X[:, :2], verbose=0)

    def compile_outside() -> Any:
        with dp.scope():
            model = dp.prepare(mlp())
        model.compile(optimizer=keras.optimizers.SGD(), loss="mse", metrics=["mae"])
        return model.fit(X, X[:, :2], verbose=0)

    def new_optimizer_outside() -> Any:
        optimizer = keras.optimizers.Adam()
        with dp.scope():
            model = dp.prepare(mlp())
            model.compile(optimizer=optimizer, loss="mse")
        return model.fit(X, X[:, :2], verbose=0)

    def compile_again_outside(*optimizer: Any) -> Any:
        with dp.scope():
            model = dp.prepare(mlp())
            model.compile("sgd", "mse", metrics=["mae"])
        model.fit(X, X[:, :2], verbose=0)
        model.layers[0].trainable = False
        model.compile(*(optimizer or ("adam",)), loss="mse", metrics=["mae"])
        return len(model.fit(X, X[:, :2], verbose=0).epoch)

    def compile_before_prepare() -> Any:
        with dp.scope():
            model = mlp()
        model.compile("sgd", "mse")
        return dp.prepare(model)

    def optimizer_in_a_list() -> Any:
        optimizers = [keras.optimizers.SGD()]
        with dp.scope():
            model = dp.prepare(Listed(mlp().layers))
            model.compile(loss="mse")
        model.optimizers = optimizers
        return model.fit(X, X[:, :2], verbose=0)

    def layer_outside() -> Any:
        layer = keras.layers.Dense(2)
        layer.build((None, 8))
        with dp.scope():
            return dp.prepare(keras.Sequential([keras.Input((8,)), layer]))

    def built_outside() -> Any:
        with dp.scope():
            model = dp.prepare(keras.Sequential([keras.layers.Dense(2)]))
            model.compile("sgd", "mse")
        model(X[:1])
        return model.fit(X, X[:, :2], verbose=0)

    def built_outside_and_updated_by_hand() -> Any:
        with dp.scope():
            model, optimizer = keras.Sequential([keras.layers.Dense(2)]), keras.optimizers.SGD()
        model.build((None, 8))

        def step(x: Any) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(x))
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

        dataset = dp.strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(X).batch(24))
        for x in dataset:
            dp.strategy.run(step, args=(x,))

    class OwnFunction(keras.Sequential):
        def make_test_function(self, force: bool = False) -> Any:
            return super().make_test_function(force)

    def own_function_of_a_class() -> Any:
        with dp.scope():
            return dp.prepare(OwnFunction(mlp().layers))

    def own_function_of_a_model() -> Any:
        with dp.scope():
            model = mlp()
        model.make_train_function = lambda force=False: None
        return dp.prepare(model)

    def stateful_rnn() -> Any:
        with dp.scope():
            inputs = keras.Input(batch_shape=(24, 4, 2))
            model = dp.prepare(keras.Sequential([inputs, keras.layers.GRU(2, stateful=True, name="kept")]))
            model.compile("sgd", "mse")
        return model.fit(X[:24].reshape(24, 4, 2), X[:24, :2], batch_size=24, verbose=0)

    wrong: dict[str, Callable[[], Any]] = {
        "stateful RNN": stateful_rnn,
        "own function, of a class": own_function_of_a_class,
        "own function, of a model": own_function_of_a_model,
        "model outside": lambda: dp.prepare(outside),
        "layer outside": layer_outside,
        "built outside": built_outside,
        "built outside, updated by hand": built_outside_and_updated_by_hand,
        "optimizer outside": optimizer_outside,
        "metric outside": metric_outside,
        "compile outside": compile_outside,
        "new optimizer outside": new_optimizer_outside,
        "compile again outside, with an optimizer": lambda: compile_again_outside(keras.optimizers.Adam()),
        "compile again outside, by name": compile_again_outside,
        "compile before prepare": compile_before_prepare,
        "optimizer in a list": optimizer_in_a_list,
        "a layer": lambda: dp.prepare(keras.layers.Dense(2)),
        "a class": lambda: dp.prepare(keras.Sequential),
        "None": lambda: dp.prepare(None),
        "not compiled": lambda: _not_compiled(dp),
    }
    found = {name: raised_by(call) for name, call in wrong.items()}
    # Nothing half-done: a model that was refused is still an ordinary one.
    outside.compile(optimizer="sgd", loss="mse")
    found["refused model"] = raised_by(lambda: len(outside.fit(X, X[:, :2], verbose=0).epoch))
    return found


def loops(num_replicas: int) -> dict[str, Raised]:
    """Loops by hand that stand where TensorFlow cannot run them; and whether the model still trains."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=24)

    def loop(*, in_scope: bool, optimizer_outside: bool = False, **options: Any) -> str:
        with contextlib.nullcontext() if optimizer_outside else dp.scope():
            optimizer = keras.optimizers.Adam()
        model, loss_of = _compiled(dp), keras.losses.MeanSquaredError()

        def step(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = loss_of(y, model(x))
            gradients = tape.gradient(loss, model.trainable_weights)
            optimizer.apply_gradients(zip(gradients, model.trainable_weights, strict=True))
            return loss

        step = tf.function(step, **options) if options else step
        before = model.get_weights()
        try:
            with dp.scope() if in_scope else contextlib.nullcontext():
                step(tf.constant(X[:24]), tf.constant(X[:24, :2]))
        finally:
            unchanged = all(np.array_equal(*pair) for pair in zip(before, model.get_weights(), strict=True))
        return "changed nothing" if unchanged else "trained"

    return {
        "inside of the scope": raised_by(lambda: loop(in_scope=True)),
        "inside of the scope, tf.function": raised_by(lambda: loop(in_scope=True, jit_compile=False)),
        "inside of the scope, XLA": raised_by(lambda: loop(in_scope=True, jit_compile=True)),
        "outside of the scope": raised_by(lambda: loop(in_scope=False)),
        "outside of the scope, tf.function": raised_by(lambda: loop(in_scope=False, jit_compile=False)),
        "outside of the scope, XLA": raised_by(lambda: loop(in_scope=False, jit_compile=True)),
        "optimizer outside": raised_by(lambda: loop(in_scope=False, optimizer_outside=True)),
        "optimizer outside, tf.function": raised_by(
            lambda: loop(in_scope=False, optimizer_outside=True, jit_compile=False)
        ),
        "train_step under XLA, check=auto": raised_by(lambda: _jit_step(dp, "auto")),
        "train_step under XLA, check=off": raised_by(lambda: _jit_step(dp, "off")),
    }


def _jit_step(dp: Any, check: str) -> Any:
    with dp.scope():
        model = JitStep(mlp().layers)
        model.compile("sgd", "mse")
    return dp.prepare(model, check=check).fit(X[:24], X[:24, :2], verbose=0)


class JitStep(keras.Sequential):
    """Compiles its whole step by itself."""

    @tf.function(jit_compile=True)
    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss}


class Listed(keras.Sequential):
    """Updates with an optimizer in a list."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        variables = self.trainable_weights
        self.optimizers[0].apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


def _not_compiled(dp: Any) -> Any:
    with dp.scope():
        model = dp.prepare(mlp())
    return model.fit(X, LABELS, verbose=0)


def arguments(num_replicas: int) -> dict[str, Raised]:
    """Arguments of `DataParallel`, `make_strategy` and `simulate_replicas`."""
    tfscale.simulate_replicas(num_replicas)
    data_parallel = tfscale.DataParallel
    wrong: dict[str, Callable[[], Any]] = {
        "neither batch": lambda: data_parallel(),
        "both batches": lambda: data_parallel(8, global_batch=24),
        "zero": lambda: data_parallel(0),
        "negative": lambda: data_parallel(global_batch=-24),
        "fraction": lambda: data_parallel(global_batch=24.0),
        "text": lambda: data_parallel("24"),
        "bool": lambda: data_parallel(True),
        "fewer than replicas": lambda: data_parallel(global_batch=num_replicas - 1),
        "batch_norm": lambda: data_parallel(24, batch_norm="global"),
        "unknown device": lambda: data_parallel(24, devices=["CPU:0", "GPU:7"]),
        "too many devices": lambda: data_parallel(24, devices=num_replicas + 1),
        "no devices": lambda: data_parallel(24, devices=[]),
        "default strategy": lambda: data_parallel(24, devices=tf.distribute.get_strategy()),
        "one-device strategy": lambda: data_parallel(24, devices=tf.distribute.OneDeviceStrategy("CPU:0")),
        "no strategy": lambda: data_parallel(24, devices="mirrored"),
        "TPU strategy": lambda: data_parallel(24, devices=_without_init(_TPU)),
        "parameter servers": lambda: data_parallel(24, devices=_without_init(_PARAMETER_SERVER)),
        "communication": lambda: tfscale.make_strategy(communication="nccl"),
        "replicas too late": lambda: tfscale.simulate_replicas(num_replicas + 1),
        "replicas zero": lambda: tfscale.simulate_replicas(0),
        "replicas bool": lambda: tfscale.simulate_replicas(True),
        "replicas text": lambda: tfscale.simulate_replicas("3"),
    }
    found = {name: raised_by(call) for name, call in wrong.items()}
    found["same replicas again"] = raised_by(lambda: tfscale.simulate_replicas(num_replicas))
    return found


_TPU = tf.distribute.TPUStrategy
_PARAMETER_SERVER = tf.distribute.ParameterServerStrategy


def _without_init(kind: type) -> Any:
    """A strategy of a kind that needs hardware or servers to be made."""
    return kind.__new__(kind)


def cluster() -> Raised:
    """A script in an environment that describes a cluster by halves."""
    return raised_by(lambda: tfscale.DataParallel(global_batch=24))

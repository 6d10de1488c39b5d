"""Runs of four logical replicas, and what is refused with them. Every function runs in its own process."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.listening import listening
from tests.training.contract import Outcome, arrays_by_name, fitting, flat_arrays, observe_fit, state_of
from tests.training.contract_cases_losses import CASES as LOSSES
from tests.training.contract_run import run_seeded
from tests.training.models import LABELS, X, classifying, labelled, mlp, normalised, sgd

LOGICAL = 4
BATCH = 24


class OwnNoise(keras.layers.Layer):
    """Draws from a generator of its own, and once more from none."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = keras.random.SeedGenerator(5)

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not training:
            return inputs
        noise = keras.random.normal(keras.ops.shape(inputs), stddev=0.1, seed=self.generator)
        return inputs + noise + keras.random.uniform(keras.ops.shape(inputs), 0, 0.1)


class Counting(keras.layers.Layer):
    """Counts steps, tells a metric a number of the batch, and adds a loss that is a mean, and one that is a sum."""

    def build(self, input_shape: Any) -> None:
        del input_shape
        self.size = keras.metrics.Mean(name="size")
        self.steps = self.add_weight(shape=(), initializer="zeros", trainable=False, name="steps")

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            self.steps.assign(self.steps + 1)
            squares = keras.ops.square(inputs)
            self.size.update_state(keras.ops.mean(squares))
            self.add_loss(0.01 * keras.ops.mean(squares))
            self.add_loss(tfscale.sum_over_examples(0.001 * keras.ops.sum(squares)))
        return inputs


def _drawing() -> keras.Model:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((8,)),
            layers.GaussianNoise(0.1),
            layers.Dense(16, activation="relu"),
            layers.BatchNormalization(momentum=0.7),
            layers.Dropout(0.3),
            layers.SpectralNormalization(layers.Dense(8)),
            layers.GaussianDropout(0.1),
            layers.Dense(4),
        ]
    )


def _augmented() -> keras.Model:
    layers = keras.layers
    images = [keras.Input((8,)), layers.Reshape((2, 4, 1)), layers.RandomFlip(), layers.RandomTranslation(0.3, 0.3)]
    return keras.Sequential([*images, layers.Flatten(), layers.Dense(4)])


def _of(build: Callable[[], keras.Model], data: Callable[[], dict[str, Any]], **compiled: Any) -> Callable[..., Any]:
    def adam() -> Any:
        return keras.optimizers.Adam(0.01)

    return fitting(build, classifying(adam, **compiled), data, evaluated=True).run


def _several_lengths(dp: Any) -> Outcome:
    """The last batch is uneven, then smaller than L, then as long as the others."""
    with dp.scope():
        model = dp.prepare(_drawing())
        model.compile(**classifying(lambda: keras.optimizers.Adam(0.01))())
    found = [observe_fit(model, labelled(rows)(), evaluated=rows != 48) for rows in (58, 50, 48)]
    return {key: [array for each in found for array in each.get(key, [])] for key in found[0]}


def _own_code(dp: Any) -> Outcome:
    with dp.scope():
        # Without logical replicas each device's thread would make one of its own.
        keras.random.uniform(())
        own = [keras.Input((8,)), OwnNoise(), Counting(), keras.layers.Dense(4)]
        model = dp.prepare(keras.Sequential(own))
        model.compile(**classifying()())
    return observe_fit(model, labelled(58)())


def _from_dataset(dp: Any) -> Outcome:
    def augment(example: Any, seed: Any) -> Any:
        rows, label = example
        return rows + tf.random.stateless_normal((8,), seed, stddev=0.1), label

    data = dp.dataset((X[:58], LABELS[:58]), map_fn=augment, shuffle=True)
    with dp.scope():
        model = dp.prepare(_drawing())
        model.compile(**classifying()())
    history = model.fit(data, epochs=2, verbose=0)
    return {**state_of(model), "history": arrays_by_name(history.history)}


def _on_batches(dp: Any) -> Outcome:
    with dp.scope():
        model = dp.prepare(_drawing())
        model.compile(**classifying()())
    # Of 4 rows or more, and of fewer than there are logical replicas.
    logs = [model.train_on_batch(X[:rows], LABELS[:rows], return_dict=True) for rows in (24, 7, 3, 1, 24)]
    return {**state_of(model), "logs": [array for each in logs for array in arrays_by_name(each)]}


RUNS: dict[str, Callable[[Any], Outcome]] = {
    "layers that draw, batches of several lengths": _several_lengths,
    "augmentation": _of(_augmented, labelled(58)),
    "steps_per_execution": _of(_drawing, labelled(82), steps_per_execution=3),
    "run_eagerly": _of(_drawing, labelled(34), run_eagerly=True),
    "jit_compile": _of(_drawing, labelled(48), jit_compile=True),
    "accumulation, clipnorm": fitting(
        _drawing, classifying(lambda: sgd(clipnorm=0.1, gradient_accumulation_steps=3)), labelled(106)
    ).run,
    "masked sequence loss, weighted": LOSSES["masked sequence loss, weighted"].run,
    "several inputs and outputs": LOSSES["several inputs and outputs, last batch smaller than N"].run,
    "embedding, sparse gradients and clipnorm": LOSSES["embedding, sparse gradients and clipnorm"].run,
    "own layers": _own_code,
    "dp.dataset with map_fn": _from_dataset,
    "train_on_batch": _on_batches,
}


ON_WORKERS = ("layers that draw, batches of several lengths", "dp.dataset with map_fn")


def runs(num_replicas: int, logical_replicas: int | None, names: Sequence[str] = tuple(RUNS)) -> dict[str, Outcome]:
    """Some of `RUNS` on so many devices of this process, or as a worker."""
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    strategy = tfscale.make_strategy()
    given = {"global_batch": BATCH, "batch_norm": "local", "seed": 3, "logical_replicas": logical_replicas}
    return {
        name: run_seeded(lambda _, run=RUNS[name]: run(tfscale.DataParallel(devices=strategy, **given)), None)
        for name in names
    }


class _Kept(keras.layers.Layer):
    """Keeps the rows that it sees in training."""

    seen: ClassVar[list[tuple[float, ...]]] = []

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            tf.numpy_function(self._keep, [inputs], [], stateful=True)
        return inputs

    def _keep(self, rows: np.ndarray) -> None:
        self.seen.extend(map(tuple, (rows != 0).astype(int).tolist()))


def _recovered(
    num_replicas: int, directory: str, epochs: int, *, deterministic: bool = False, **compiled: Any
) -> tuple[Any, np.ndarray, int, Any]:
    """A run that begins in this directory, or goes on from there: the model, its rows, steps made and history."""
    tfscale.simulate_replicas(num_replicas)
    given = {"logical_replicas": LOGICAL, "batch_norm": "local", "seed": 7, "deterministic": deterministic}
    dp = tfscale.DataParallel(global_batch=BATCH, **given)
    with dp.scope():
        model = dp.prepare(_drawing())
        model.compile(keras.optimizers.Adam(0.01), "mse", **compiled)
    rows = np.random.default_rng(0).normal(size=(4 * BATCH - 5, 8)).astype("float32")
    recovery = tfscale.callbacks.Recovery(directory, every_steps=3)
    data = dp.dataset((rows, rows[:, :4]), shuffle=True)
    steps: list[int] = []
    counting = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: steps.append(batch))
    history = model.fit(data, epochs=epochs, verbose=0, callbacks=[recovery, counting])
    return model, rows, len(steps), history


def going_on(num_replicas: int, directory: str, epochs: int) -> tuple[int, list[np.ndarray]]:
    """Steps that were made, and the state after them: a run begins in this directory, or goes on from there."""
    model, _, steps, _ = _recovered(num_replicas, directory, epochs)
    return steps, [np.asarray(each) for each in (*model.weights, *model.optimizer.variables)]


def masks(num_replicas: int) -> list[tuple[float, ...]]:
    """The masks of dropout for 24 rows of ones."""
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=BATCH, logical_replicas=LOGICAL, seed=1)
    with dp.scope():
        layers = [keras.Input((40,)), keras.layers.Dropout(0.5), _Kept(), keras.layers.Dense(1)]
        model = dp.prepare(keras.Sequential(layers), check="off")
        model.compile("sgd", "mse")
    model.fit(np.ones((BATCH, 40), "float32"), np.ones((BATCH, 1)), batch_size=BATCH, verbose=0, shuffle=False)
    return sorted(_Kept.seen)


class OwnStep(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(4)

    def call(self, inputs: Any) -> Any:
        return self.dense(inputs)

    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


class OwnTest(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.dense, self.generator = keras.layers.Dense(4), keras.random.SeedGenerator(1)

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            return self.dense(inputs)
        return self.dense(inputs + keras.random.normal(keras.ops.shape(inputs), seed=self.generator))

    def test_step(self, data: Any) -> Any:
        return super().test_step(data)


def _scaled_by_batch(inputs: Any) -> Any:
    return inputs - keras.ops.mean(inputs, axis=0)


def _drawn(inputs: Any) -> Any:
    return inputs + tf.random.normal(tf.shape(inputs))


def _of_lambda(function: Callable[[Any], Any]) -> keras.Model:
    return keras.Sequential([keras.Input((8,)), keras.layers.Lambda(function), keras.layers.Dense(4)])


def _spread(y: Any, y_pred: Any) -> Any:
    del y
    return keras.ops.std(y_pred)


def _stateful() -> keras.Model:
    layers = keras.layers
    made = [keras.Input((8,), batch_size=24), layers.Reshape((2, 4)), layers.GRU(4, stateful=True), layers.Dense(4)]
    return keras.Sequential(made)


def _error(call: Callable[[], Any]) -> tuple[str, str, bool]:
    try:
        call()
    except tfscale.TfscaleError as error:
        return type(error).__name__, str(error), True
    return "no error", "", False


def refused(num_replicas: int) -> dict[str, tuple[str, str, bool]]:
    """The kind and the text of each error, and whether the weights are those of before."""
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    strategy = tfscale.make_strategy()

    def made(**given: Any) -> Any:
        return tfscale.DataParallel(
            devices=strategy, **{"global_batch": BATCH, "logical_replicas": LOGICAL, "batch_norm": "local", **given}
        )

    def error_of(
        build: Callable[[], keras.Model],
        call: Callable[[Any, keras.Model], Any] | None = None,
        check: str = "auto",
        compiled: Any = None,
        **given: Any,
    ) -> tuple[str, str, bool]:
        dp = made(**given)
        with dp.scope():
            model = dp.prepare(build(), check=check)
            model.compile(**(compiled or classifying())())
            if not model.built:
                model(X[:24])
        before = flat_arrays(model.get_weights())
        call = call or (lambda dp, model: model.fit(X[:24], LABELS[:24], verbose=0))
        kind, text, _ = _error(lambda: call(dp, model))
        after = flat_arrays(model.get_weights())
        return kind, text, all(np.array_equal(*pair) for pair in zip(before, after, strict=True))

    def predict(dp: Any, model: keras.Model) -> Any:
        del dp
        return model.predict(X[:24], verbose=0)

    def evaluate(dp: Any, model: keras.Model) -> Any:
        del dp
        return model.evaluate(X[:24], LABELS[:24], verbose=0)

    def fit_others(dp: Any, model: keras.Model) -> Any:
        other = made(logical_replicas=None)
        return model.fit(other.dataset((X[:24], LABELS[:24])), verbose=0)

    def distributed(dp: Any, model: keras.Model) -> Any:
        def of_replica(context: Any) -> Any:
            del context
            return tf.data.Dataset.from_tensor_slices((X[:24], LABELS[:24])).batch(6)

        return model.fit(dp.strategy.distribute_datasets_from_function(of_replica), steps_per_epoch=1, verbose=0)

    def by_hand(dp: Any, model: keras.Model) -> Any:
        return dp.strategy.run(lambda: model(X[:6], training=True))

    def one_number(y: Any, y_pred: Any) -> Any:
        return keras.ops.mean(keras.ops.square(keras.ops.mean(y_pred) - keras.ops.mean(keras.ops.cast(y, "float32"))))

    def at_odds(**given: Any) -> tuple[str, str, bool]:
        return _error(lambda: made(**given))

    outside = keras.random.SeedGenerator(1)

    def drawn_outside(inputs: Any) -> Any:
        return inputs + keras.random.normal(keras.ops.shape(inputs), seed=outside)

    found = {
        "no number": at_odds(logical_replicas=2.0),
        "none": at_odds(logical_replicas=0),
        "does not divide": at_odds(global_batch=26),
        "micro_batch": at_odds(micro_batch=2),
        "compression": at_odds(network=tfscale.Network(compression="bf16")),
        "double buffering": at_odds(network=tfscale.Network(double_buffering=True)),
        "worker_load": _error(lambda: made().dataset(X, worker_load=[1] * num_replicas)),
        "own train_step": error_of(OwnStep, check="off"),
        "synchronised": error_of(lambda: normalised(momentum=0.7), batch_norm="synchronized"),
        "AdaScale": error_of(mlp, compiled=classifying(lambda: tfscale.AdaScaleSGD(0.1))),
        "tf.random": error_of(lambda: _of_lambda(_drawn), check="off"),
        "generator made outside": error_of(lambda: _of_lambda(drawn_outside), check="off"),
        "predict that draws": error_of(OwnTest, predict, check="off"),
        "test_step that draws": error_of(OwnTest, evaluate, check="off"),
        "other division": error_of(mlp, fit_others),
        "one number": error_of(mlp, check="off", compiled=lambda: {"optimizer": "sgd", "loss": one_number}),
        "metric of all rows": error_of(mlp, check="off", compiled=classifying(metrics=[_spread])),
        "stateful RNN": error_of(_stateful),
        "loop by hand": error_of(mlp, by_hand),
        "own code": error_of(lambda: _of_lambda(_scaled_by_batch)),
    }
    if num_replicas > 1:
        found["too few"] = at_odds(logical_replicas=num_replicas - 1)
        found["distributed by hand"] = error_of(mlp, distributed)
    return found


def prepared_again(num_replicas: int) -> tuple[str, str]:
    """What is said of a run of logical replicas, and of one without."""
    tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(per_replica_batch=6, logical_replicas=8)
    without = tfscale.DataParallel(global_batch=6, devices=dp.strategy)
    with dp.scope():
        model = dp.prepare(mlp())
        model.compile(**classifying()())
    model.fit(X[:48], LABELS[:48], verbose=0)
    without.prepare(model).fit(X[:6], LABELS[:6], verbose=0)
    return str(dp), str(without)


TO_THE_BIT = tuple(name for name in RUNS if name not in ("run_eagerly", "jit_compile", "accumulation, clipnorm"))


def digests(num_replicas: int, names: Sequence[str] = TO_THE_BIT, logical_replicas: int = LOGICAL) -> dict[str, Any]:
    """A digest of each array of some of `RUNS` with `deterministic=True`, on so many devices of this process."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    strategy = tfscale.make_strategy()
    given = {"global_batch": BATCH, "batch_norm": "local", "seed": 3, "logical_replicas": logical_replicas}
    given |= {"deterministic": True, "devices": strategy}
    found = {}
    for name in names:
        outcome = run_seeded(lambda _, run=RUNS[name]: run(tfscale.DataParallel(**given)), None)
        found[name] = {key: digest_of(value) for key, value in outcome.items()}
    return found


def digest_of(arrays: Any) -> str:
    """Of all bytes of arrays in a structure."""
    leaves = [np.asarray(leaf) for leaf in tf.nest.flatten(arrays)]
    text = "".join(f"{leaf.dtype} {leaf.shape} {leaf.tobytes().hex()}" for leaf in leaves)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def trained_to_the_bit(num_replicas: int, directory: str, epochs: int) -> tuple[int, list[str]]:
    """As `going_on`, to the bit: the digests after it, of predictions and of an evaluation, too."""
    model, rows, steps, history = _recovered(num_replicas, directory, epochs, metrics=["mae"], deterministic=True)
    evaluated = model.evaluate(rows[:50], rows[:50, :4], batch_size=20, verbose=0)
    predicted = model.predict(rows[:50], batch_size=20, verbose=0)
    after = [*model.weights, *model.optimizer.variables]
    kept = [history.history, history.epoch, evaluated, predicted, *(np.asarray(each) for each in after)]
    return steps, [digest_of(each) for each in kept]


def told_when_it_goes_on(num_replicas: int, directory: str, epochs: int, deterministic: bool) -> list[str]:
    """What is warned of when a run begins in this directory, or goes on from there."""
    with listening(level=logging.WARNING) as told:
        _recovered(num_replicas, directory, epochs, deterministic=deterministic)
    return told


def refused_to_the_bit() -> dict[str, tuple[str, str, bool]]:
    """What cannot be to the bit: the kind and the text of each error."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    strategy = tfscale.make_strategy()
    given = {"global_batch": BATCH, "batch_norm": "local", "devices": strategy}

    def fitted(steps: int | None = None, **compiled: Any) -> Any:
        with strategy.scope():
            # Compiled before: in a process that is deterministic Keras says itself that there is no `jit_compile=True`.
            model = made(logical_replicas=LOGICAL).prepare(mlp())
            optimizer = sgd(gradient_accumulation_steps=steps)
            model.compile(**{**classifying()(), "optimizer": optimizer, **compiled})
        dp = made(logical_replicas=LOGICAL, seed=1, deterministic=True)
        return dp.prepare(model).fit(X[:24], LABELS[:24], verbose=0)

    def made(**more: Any) -> Any:
        return tfscale.DataParallel(**given, **more)

    def prepared(**more: Any) -> Any:
        with strategy.scope():
            return tfscale.prepare(mlp(), strategy=strategy, **more)

    return {
        "no bool": _error(lambda: made(deterministic=1)),
        "no logical replicas": _error(lambda: made(deterministic=True, seed=1)),
        "no seed": _error(lambda: made(deterministic=True, logical_replicas=4)),
        "jit_compile": _error(lambda: fitted(jit_compile=True)),
        "run_eagerly": _error(lambda: fitted(run_eagerly=True)),
        "accumulation": _error(lambda: fitted(steps=2)),
        "prepare, no bool": _error(lambda: prepared(deterministic=1)),
        "prepare, no logical replicas": _error(lambda: prepared(deterministic=True)),
        "prepare": _error(lambda: prepared(deterministic=True, logical_replicas=4)),
        "fine": _error(fitted),
    }


def too_late() -> dict[str, tuple[str, str, bool]]:
    """TensorFlow has started with as many threads as there are cores."""
    tf.constant(1.0)
    given = {"logical_replicas": 4, "deterministic": True}
    strategy = tfscale.make_strategy()
    with strategy.scope():
        model = mlp()
    return {
        "DataParallel": _error(lambda: tfscale.DataParallel(global_batch=8, seed=1, **given)),
        "prepare": _error(lambda: tfscale.prepare(model, strategy=strategy, **given)),
    }

"""What `NoiseScale` measures, in all forms of a step. Each function is called in a child."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tfscale.callbacks import NoiseScale
from tfscale.replicas.progress import watch_progress
from tfscale.replicas.replica_batch import local_replicas

BATCH = 24
ROWS = 4 * BATCH + 10
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(ROWS, 6)).astype("float32")
Y = (X[:, 0] - 2 * X[:, 1] + RANDOM.normal(size=ROWS)).astype("float32")
# Some rows do not count.
KEPT = RANDOM.choice([0.0, 1.0, 1.0], ROWS).astype("float32")


class OwnStep(keras.Sequential):
    """A step of one's own."""

    def train_step(self, data: Any) -> Any:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.optimizer.scale_loss(self.compute_loss(x, y, y_pred, sample_weight))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
        return {metric.name: metric.result() for metric in self.metrics}


def _dense() -> list[Any]:
    return [keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)]


def _tokens(x: Any) -> Any:
    return keras.ops.cast(keras.ops.abs(2 * x), "int32") % 5


def _sgd(**more: Any) -> Any:
    return lambda: keras.optimizers.SGD(0.05, momentum=0.9, **more)


def _scaled() -> Any:
    return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05, momentum=0.9), initial_scale=1024.0)


PLAIN: dict[str, Any] = {
    "cls": keras.Sequential,
    "layers": _dense,
    "optimizer": _sgd(),
    "compiled": {},
    "given": {},
    "check": "off",
    "policy": "float32",
}
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "clipped by value": {"optimizer": _sgd(clipvalue=0.1)},
    "clipped by norm": {"optimizer": _sgd(clipnorm=0.5)},
    "clipped by global norm": {"optimizer": _sgd(global_clipnorm=0.5)},
    "several steps per call": {"compiled": {"steps_per_execution": 3}},
    "micro-steps": {"given": {"micro_batch": 3}},
    "loss scale": {"optimizer": _scaled},
    "accumulation": {"optimizer": _sgd(gradient_accumulation_steps=2)},
    "double buffering": {"given": {"network": tfscale.Network(double_buffering=True)}},
    "bf16": {"given": {"network": tfscale.Network(compression="bf16")}},
    "own step": {"cls": OwnStep},
    "own step, loss scale": {"cls": OwnStep, "optimizer": _scaled},
    "eager": {"compiled": {"run_eagerly": True}},
    "XLA": {"compiled": {"jit_compile": True}},
    "Adam, checked": {"optimizer": lambda: keras.optimizers.Adam(0.01), "check": "always"},
    "AdaScale": {"optimizer": lambda: tfscale.AdaScaleSGD(0.05, reference_batch=8)},
    "L2": {
        "layers": lambda: [
            keras.Input((6,)),
            keras.layers.Dense(8, activation="tanh", kernel_regularizer=keras.regularizers.L2(0.05)),
            keras.layers.Dense(1),
        ]
    },
    "dropout": {"layers": lambda: [*_dense()[:2], keras.layers.Dropout(0.3), *_dense()[2:]]},
    "synchronized BN": {
        "layers": lambda: [*_dense()[:2], keras.layers.BatchNormalization(), *_dense()[2:]],
        "given": {"batch_norm": "synchronized"},
    },
    "embedding": {
        "layers": lambda: [
            keras.Input((6,)),
            keras.layers.Lambda(_tokens),
            keras.layers.Embedding(5, 4),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    },
    "mean of weights": {"loss": keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")},
    "mask": {
        "layers": lambda: [
            keras.Input((1, 6)),
            keras.layers.Masking(),
            keras.layers.Dense(8, activation="tanh"),
            keras.layers.Dense(1),
        ],
        "given": {"micro_batch": 4},
    },
    "local BN": {
        "layers": lambda: [*_dense()[:2], keras.layers.BatchNormalization(), *_dense()[2:]],
        "given": {"batch_norm": "local"},
    },
}


def make(form: str, num_replicas: int, strategy: Any = None, **more: Any) -> tuple[Any, keras.Model]:
    """A model on replicas, with the same first weights in every process."""
    chosen = PLAIN | FORMS[form] | more
    if strategy is None and num_replicas > 1 and len(tf.config.get_visible_devices("CPU")) == 1:
        tfscale.simulate_replicas(num_replicas)
    keras.backend.clear_session()
    keras.mixed_precision.set_dtype_policy(chosen["policy"])
    devices = {} if num_replicas > 1 else {"devices": 1}
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1, **devices, **chosen["given"])
    with dp.scope():
        model = dp.prepare(chosen["cls"](chosen["layers"]()), check=chosen["check"])
        model.compile(chosen["optimizer"](), chosen.get("loss", "mse"), metrics=["mae"], **chosen["compiled"])
    return dp, model


def fit(model: keras.Model, callbacks: Any, epochs: int = 2, data: Any = (X, Y)) -> dict[str, Any]:
    named = dict(zip(("x", "y", "sample_weight"), data, strict=False))
    options = {"batch_size": BATCH, "epochs": epochs, "shuffle": False, "verbose": 0}
    return model.fit(**named, **options, callbacks=callbacks).history


def state(model: keras.Model) -> list[np.ndarray]:
    return [np.asarray(variable) for variable in [*model.variables, *model.optimizer.variables]]


def facts(noise: NoiseScale) -> dict[str, Any]:
    """What can travel to the test."""
    return {
        "rows": noise.rows,
        "found": noise.found,
        "by_layer": noise.by_layer,
        "clipped_share": noise.clipped_share,
        "approximate": noise.approximate,
    }


def measured(form: str, num_replicas: int, every: int = 1, per_layer: bool = False) -> dict[str, Any]:
    """A run that is measured, and one that is not: what it leaves, and how often something is sent."""
    results = []
    for callbacks in (None, [NoiseScale(every=every, per_layer=per_layer)]):
        dp, model = make(form, num_replicas)
        progress, _ = watch_progress(model, local_replicas(dp.strategy))
        history = fit(model, callbacks)
        results.append({"history": history, "state": state(model), "sent": progress.read()[0]})
    without, with_it = results
    return {"without": without, "with": with_it, **facts(callbacks[0])}


def edges_of(n: int, shards: int) -> list[slice]:
    edges = [n * i // shards for i in range(shards + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(edges) if b > a]


def gradients_of(form: str, shards: int, data: Any = (X, Y, None), *, delay: int = 0, cut: bool = False) -> list[Any]:
    """A, q, n and K of each step of two epochs by plain Keras and the tape, at the weights of its own run.

    Args:
        form: One without replicas of its own.
        shards: K.
        data: x, y and weights of examples.
        delay: Steps that a gradient waits.
        cut: Whether examples without weight are left out, and all others count alike.
    """
    chosen = PLAIN | FORMS[form]
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    model = keras.Sequential(chosen["layers"]())
    loss_of = keras.losses.get(chosen.get("loss", "mse"))
    model.compile(chosen["optimizer"](), loss_of)
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    found = []

    def gradient(x: Any, y: Any) -> list[np.ndarray]:
        with tf.GradientTape() as tape:
            loss = model.compute_loss(None, y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        return [tf.convert_to_tensor(each).numpy().astype("float64") for each in gradients]

    def kept(rows: slice, part: slice) -> Any:
        x, y, weights = (None if each is None else each[rows][part] for each in data)
        return (x[weights > 0], y[weights > 0]) if cut else (x, y)

    def square(gradients: list[np.ndarray]) -> float:
        return sum(float(np.sum(each**2)) for each in gradients)

    for _ in range(2):
        waiting: list[Any] = []
        for start in range(0, len(data[0]), BATCH):
            rows = slice(start, min(start + BATCH, len(data[0])))
            parts = [kept(rows, part) for part in edges_of(rows.stop - start, shards)]
            parts = [part for part in parts if len(part[0])]
            n = sum(len(x) for x, _ in parts)
            squares = sum(len(x) / n * square(gradient(x, y)) for x, y in parts)
            whole = gradient(*kept(rows, slice(None)))
            found.append((squares, square(whole), n, len(parts)))
            waiting.append(whole)
            if len(waiting) > delay:
                optimizer.apply([each.astype("float32") for each in waiting.pop(0)], model.trainable_variables)
        for whole in waiting:
            optimizer.apply([each.astype("float32") for each in whole], model.trainable_variables)
    return found


def weighted(num_replicas: int) -> dict[str, Any]:
    """A loss that divides by the sum of weights of 0 and 1, which differ from replica to replica."""
    _, model = make("mean of weights", num_replicas)
    noise = NoiseScale(every=1)
    fit(model, [noise], data=(X, Y, KEPT))
    expected = gradients_of("mean of weights", num_replicas, (X, Y, KEPT), cut=True)
    return {"expected": expected, **facts(noise)}


def masked(num_replicas: int) -> dict[str, Any]:
    """As `weighted`, with the mask of a layer, in micro-steps."""
    _, model = make("mask", num_replicas)
    x = np.where(KEPT[:, None, None] > 0, X[:, None, :], 0.0).astype("float32")[: 4 * BATCH]
    y, kept = Y[: 4 * BATCH, None, None], KEPT[: 4 * BATCH]
    noise = NoiseScale(every=1)
    fit(model, [noise], data=(x, y))
    return {"expected": gradients_of("mask", 2 * num_replicas, (x, y, kept), cut=True), **facts(noise)}


def half_precision(num_replicas: int) -> dict[str, Any]:
    """float16 beside float32, and a scale that is too large at first."""
    found = {}
    policies = {"float32": "float32", "float16": "mixed_float16", "large": "mixed_float16"}
    for name, policy in policies.items():
        scale = 2.0**40 if name == "large" else 1024.0

        def optimizer(policy: str = policy, scale: float = scale) -> Any:
            inner = keras.optimizers.SGD(0.01)
            return inner if policy == "float32" else keras.optimizers.LossScaleOptimizer(inner, initial_scale=scale)

        _, model = make("plain", num_replicas, optimizer=optimizer, policy=policy)
        noise = NoiseScale(every=1)
        fit(model, [noise], epochs=6)
        found[name] = facts(noise)
    return found


def compressed(num_replicas: int) -> Any:
    """bf16 on the wire beside none, and what is refused."""
    found = {}
    for form in ("plain", "bf16"):
        _, model = make(form, num_replicas)
        noise = NoiseScale(every=1)
        fit(model, [noise], epochs=6)
        found[form] = facts(noise)
    dp, model = make("plain", num_replicas, given={"network": tfscale.Network(compression=tfscale.PowerSGD(1))})
    found["kinds"] = [type(each).__name__ for each in dp.callbacks("runs/a")]
    try:
        fit(model, [NoiseScale()])
    except tfscale.MeasureError as error:
        found["error"] = str(error)
    return found


def same_rows(form: str, num_replicas: int) -> list[Any]:
    """All examples are equal: whatever differs between shards is chance of the model's own."""
    _, model = make(form, num_replicas)
    noise = NoiseScale(every=1)
    fit(model, [noise], data=(np.ones_like(X), np.ones_like(Y)))
    return noise.rows


def of_batch_norm(form: str, num_replicas: int, steps: int = 1500) -> dict[str, Any]:
    """v at fixed weights, beside the variance of the gradients of whole batches."""
    random = np.random.default_rng(5)
    n = 64
    x = random.normal(size=(n * steps, 6)).astype("float32")
    y = (x[:, 0] - 2 * x[:, 1] + random.normal(size=n * steps)).astype("float32")
    given = FORMS[form]["given"]
    compiled = {"steps_per_execution": 50}
    simulated = make(form, num_replicas)[0].strategy
    dp = tfscale.DataParallel(global_batch=n, devices=simulated, **given)
    with dp.scope():
        keras.utils.set_random_seed(3)
        model = dp.prepare(keras.Sequential(FORMS[form]["layers"]()), check="off")
        model.compile(keras.optimizers.SGD(0.0), "mse", **compiled)
    noise = NoiseScale(every=1)
    weights = model.get_weights()
    model.fit(x, y, batch_size=n, shuffle=False, verbose=0, callbacks=[noise])
    plain = keras.Sequential(FORMS[form]["layers"]())
    plain.set_weights(weights)
    parts = edges_of(n, num_replicas) if form == "local BN" else [slice(0, n)]

    @tf.function
    def whole(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = [tf.reduce_mean((plain(x[part], training=True)[:, 0] - y[part]) ** 2) for part in parts]
            loss = tf.add_n(losses) / len(parts)
        return tf.concat([tf.reshape(each, [-1]) for each in tape.gradient(loss, plain.trainable_variables)], 0)

    batches = [slice(i * n, (i + 1) * n) for i in range(steps)]
    gradients = np.array([whole(x[rows], y[rows]).numpy() for rows in batches])
    found = sum(row.moments.variance for row in noise.rows) / len(noise.rows)
    expected = n * float(np.sum(np.var(gradients, axis=0, ddof=1)))
    return {"found": found, "expected": expected, "approximate": noise.approximate}


def trace(num_replicas: int, micro_batch: int | None, directory: str = "", clipped: bool = False) -> list[Any]:
    """The measured steps of one run, however it is divided into four shards of six rows."""
    form = "clipped by global norm" if clipped else "plain"
    dp, model = make(form, num_replicas, given={"micro_batch": micro_batch} if micro_batch else {})
    whole = 4 * BATCH
    noise = NoiseScale(every=1, path=Path(directory, f"{dp.rank}.csv") if directory else None)
    fit(model, [noise], data=(X[:whole], Y[:whole]))
    return noise.rows


def resumed(directory: str) -> dict[str, Any]:
    """A file that goes on, one that begins anew, and the callbacks of `dp.callbacks` beside one's own."""
    dp, model = make("plain", 2)
    path = Path(directory, "runs", "other.csv")
    fit(model, [NoiseScale(every=2, path=path)], epochs=1)
    model.fit(X, Y, batch_size=BATCH, initial_epoch=1, epochs=2, verbose=0, callbacks=[NoiseScale(every=2, path=path)])
    went_on = path.read_text()
    own, others = NoiseScale(every=2, per_layer=True), dp.callbacks(directory)
    fit(model, [own, *others])
    fit(model, [*others[:1], *others[2:], own])
    [yielding] = [each for each in others if isinstance(each, NoiseScale)]
    result = {"went_on": went_on, "own": facts(own), "yielded": len(yielding.rows)}
    fit(model, dp.callbacks(directory), epochs=4)
    return {**result, "summary": Path(directory, "noise.json").read_text()}


def refused() -> dict[str, str]:
    """What cannot be measured."""
    strategy = make("plain", 2)[0].strategy
    found = {}
    with strategy.scope():
        model = keras.Sequential(_dense())
        model.compile("sgd", "mse")

    def attempt(name: str, call: Any) -> None:
        try:
            call()
        except tfscale.TfscaleError as error:
            found[name] = f"{type(error).__name__}: {error}"

    alone = keras.Sequential(_dense())
    alone.compile("sgd", "mse")
    attempt("not prepared", lambda: fit(alone, [NoiseScale()]))
    for name, arguments in (("every", {"every": 0}), ("bool", {"every": True}), ("layer", {"per_layer": 1})):
        attempt(name, lambda arguments=arguments: NoiseScale(**arguments))
    return found


def waiting(shards: int) -> list[Any]:
    """What the tape gives of a run in which each update uses the gradients of the step before."""
    return gradients_of("plain", shards, delay=1)


def accumulated(shards: int) -> float:
    """v of the first two batches at the first weights: of six shards of eight rows."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    model = keras.Sequential(_dense())
    gradients = []
    for part in edges_of(2 * BATCH, 2 * shards):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(X[part])[:, 0] - Y[part]) ** 2)
        own = tape.gradient(loss, model.trainable_variables)
        gradients.append(np.concatenate([each.numpy().ravel() for each in own]).astype("float64"))
    return float(2 * BATCH * np.sum(np.var(gradients, axis=0)) / (2 * shards - 1))

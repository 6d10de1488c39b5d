"""Workers that read other batches than one another. Every function runs in each worker."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale

X = np.linspace(-1.0, 1.0, 96).reshape(24, 4).astype("float32")
Y = np.arange(24, dtype="float32")[:, None]
BATCH = 6


def _batches(draw: Any, augment: Any, first_epochs: int = 0) -> Iterator[Any]:
    epoch = 0
    while True:
        order = np.arange(24) if epoch < first_epochs else draw.permutation(24)
        for start in range(0, 24, BATCH):
            chosen = order[start : start + BATCH]
            yield X[chosen] + augment.normal(size=(BATCH, 4)).astype("float32"), Y[chosen]
        epoch += 1


def fits() -> dict[str, str]:
    """What `fit` says, by how a generator draws."""
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1)
    own = np.random.default_rng
    kinds: dict[str, Callable[[], Iterator[Any]]] = {
        "own entropy": lambda: _batches(own(), own(0)),
        "own entropy, after an epoch": lambda: _batches(own(), own(0), 1),
        "seeded": lambda: _batches(own(3), own(3)),
        "seeded by tfscale": lambda: _batches(np.random, np.random),
        "augmented by own entropy": lambda: _batches(own(3), own()),
    }
    # First: a `fit` reads ahead, on one worker further than on another, and so may draw more often by then.
    found = {f"train_on_batch, {name}": _loop(dp, batches()) for name, batches in kinds.items()}
    # More batches before than what is read ahead of the first step.
    kinds["own entropy, after an epoch"] = lambda: _batches(own(), own(0), 8)
    steps = {name: 32 if "after" in name else 4 for name in kinds}
    found |= {name: _fit(dp, batches(), steps_per_epoch=steps[name]) for name, batches in kinds.items()}
    augmented = kinds["augmented by own entropy"]()
    found["augmented, checked"] = _fit(dp, augmented, kind=Checked, steps_per_epoch=4)
    found |= {f"PyDataset, {name}": _fit(dp, _Batches(*draws())) for name, draws in DRAWS.items()}
    by_rounding = 1 + 1e-6 * tfscale.resolve_cluster().rank
    found["train_on_batch, labels of a prediction"] = _loop(
        dp, ((x, y * by_rounding) for x, y in _batches(own(3), own(3)))
    )
    return found


DRAWS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "own entropy": lambda: (np.random.default_rng(), np.random.default_rng(0)),
    "seeded": lambda: (np.random.default_rng(3), np.random.default_rng(3)),
    "augmented by own entropy": lambda: (np.random.default_rng(3), np.random.default_rng()),
    "own entropy, after two epochs": lambda: (np.random.default_rng(), np.random.default_rng(0), 2),
}


class _Batches(keras.utils.PyDataset):
    """In an order that is drawn when it is made, and after each epoch."""

    def __init__(self, draw: Any, augment: Any, first_epochs: int = 0):
        super().__init__()
        self._draw, self._augment, self._in_order = draw, augment, first_epochs
        self.on_epoch_end()

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        chosen = self._order[BATCH * index : BATCH * (index + 1)]
        return X[chosen] + self._augment.normal(size=(BATCH, 4)).astype("float32"), Y[chosen]

    def on_epoch_end(self) -> None:
        self._order = np.arange(24) if self._in_order else self._draw.permutation(24)
        self._in_order = max(self._in_order - 1, 0)


class Checked(keras.Sequential):
    """Its first step is looked at."""

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *_: Any, **__: Any) -> Any:
        return keras.ops.mean((y_pred - y) ** 2)


def _fit(dp: tfscale.DataParallel, batches: Any, kind: type = keras.Sequential, **arguments: Any) -> str:
    model, seen = _model(dp, kind), _Epochs()
    before = model.get_weights()
    try:
        model.fit(batches, epochs=3, shuffle=False, verbose=0, callbacks=[seen], **arguments)
    except tfscale.DataError as error:
        return _said(error, before, model)
    return f"{seen.count} epochs"


def _model(dp: tfscale.DataParallel, kind: type = keras.Sequential) -> Any:
    with dp.scope():
        model = dp.prepare(kind([keras.Input((4,)), keras.layers.Dense(1)]))
        model.compile(keras.optimizers.SGD(0.01), "mse")
    return model


def _said(error: tfscale.DataError, before: list[np.ndarray], model: keras.Model) -> str:
    is_untouched = all(np.array_equal(*pair) for pair in zip(before, model.get_weights(), strict=True))
    return f"{error} {'untouched' if is_untouched else 'trained'}"


def _loop(dp: tfscale.DataParallel, batches: Iterator[Any]) -> str:
    """Three epochs by `train_on_batch`."""
    model = _model(dp)
    before = model.get_weights()
    try:
        for _, (x, y) in zip(range(12), batches, strict=False):
            model.train_on_batch(x, y)
    except tfscale.DataError as error:
        return _said(error, before, model)
    return "3 epochs"


def _examples(order: Any) -> Iterator[Any]:
    for index in order:
        yield X[index], Y[index]


def _slices(*, part: slice = slice(None)) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X[part], Y[part]))


def _from_generator(draw: Callable[[], Any], *, labelled: bool = True) -> tf.data.Dataset:
    spec = tf.TensorSpec((4,)), tf.TensorSpec((1,))
    found = tf.data.Dataset.from_generator(lambda: _examples(draw().permutation(24)), output_signature=spec)
    return (
        found
        if labelled
        else tf.data.Dataset.zip((found.map(lambda x, _: x), tf.data.Dataset.range(24).map(_no_label)))
    )


def _no_label(_: Any) -> tf.Tensor:
    """As is given where the loss is one of the model's own."""
    return tf.zeros(1)


def _noisy_inputs(x: Any, y: Any) -> tuple[Any, Any]:
    return x + tf.random.uniform(tf.shape(x), seed=tfscale.resolve_cluster().rank), 0.0 * y


def _noisy_labels(x: Any, y: Any) -> tuple[Any, Any]:
    return x, y + tf.random.uniform(tf.shape(y), seed=tfscale.resolve_cluster().rank)


def _kinds_of_data() -> dict[str, Callable[[], tuple[Any, ...]]]:
    """Arguments of `fit`, `evaluate` or `predict`."""
    rank = tfscale.resolve_cluster().rank
    own, mixed = slice(rank, None, 3), tf.data.Dataset.sample_from_datasets
    halves = [_slices(part=slice(12)), _slices(part=slice(12, None))]
    return {
        "arrays": lambda: (X[own], Y[own]),
        "more rows on one": lambda: (X[: 12 + 6 * rank], Y[: 12 + 6 * rank]),
        "slices": lambda: (_slices(part=own).batch(BATCH),),
        "shard": lambda: (_slices().shard(3, rank).batch(BATCH),),
        "sample_from_datasets": lambda: (mixed(halves, [0.5, 0.5], seed=rank).batch(BATCH),),
        "from_generator": lambda: (_from_generator(np.random.default_rng).batch(BATCH),),
        "distributed": lambda: (_distributed(_slices(part=own).batch(BATCH)),),
        "triplets": lambda: (_from_generator(np.random.default_rng, labelled=False).batch(BATCH),),
        "triplets, seeded": lambda: (_from_generator(lambda: np.random.default_rng(3), labelled=False).batch(BATCH),),
        "triplets, augmented": lambda: (_slices().batch(BATCH).map(_noisy_inputs),),
        "all the data": lambda: (_slices().batch(BATCH),),
        "from_generator, seeded": lambda: (_from_generator(lambda: np.random.default_rng(3)).batch(BATCH),),
        "noisy labels": lambda: (_slices().batch(BATCH).map(_noisy_labels),),
    }


def _distributed(dataset: tf.data.Dataset) -> Any:
    return tf.distribute.get_strategy().experimental_distribute_dataset(dataset)


ALL = ["fit", "evaluate", "predict"]
CALLS = {"arrays": ALL, "more rows on one": ALL, "from_generator": ALL, "from_generator, seeded": ALL}


def data_of_calls() -> dict[str, str]:
    """What each call says, by the data that it is given."""
    dp = tfscale.DataParallel(global_batch=BATCH)
    found = {}
    for name, given in _kinds_of_data().items():
        for call in CALLS.get(name, ["fit"]):
            with dp.scope():
                data = given()
            size = {"batch_size": BATCH} if isinstance(data[0], np.ndarray) else {}
            found[f"{name}, {call}"] = _call(_model(dp), call, data[:1] if call == "predict" else data, **size)
    validation = _from_generator(np.random.default_rng).batch(BATCH)
    found["validation"] = _call(_model(dp), "fit", (X, Y), validation_data=validation)
    own = _batches(np.random.default_rng(), np.random.default_rng(0))
    found["a generator"] = _call(_model(dp), "fit", (X, Y), validation_data=own, validation_steps=2)
    return found


def _call(model: keras.Model, name: str, data: tuple[Any, ...], **arguments: Any) -> str:
    before = model.get_weights()
    warned = _Warnings()
    logging.getLogger("tfscale.data.labels_read").addHandler(warned)
    # So does plain Keras, where a data set does not say how many batches it has.
    warnings.filterwarnings("ignore", "Your input ran out of data")
    try:
        getattr(model, name)(*data, verbose=0, **arguments)
    except tfscale.DataError as error:
        return _said(error, before, model)
    finally:
        logging.getLogger("tfscale.data.labels_read").removeHandler(warned)
    return f"done, {len(warned.said)} warning(s)"


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


class _Epochs(keras.callbacks.Callback):
    count = 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del epoch, logs
        self.count += 1

"""Workers that read a generator. Every function runs in each worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

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
    found |= {name: _fit(dp, batches(), steps_per_epoch=4) for name, batches in kinds.items()}
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
    with dp.scope():
        model = dp.prepare(kind([keras.Input((4,)), keras.layers.Dense(1)]))
        model.compile(keras.optimizers.SGD(0.01), "mse")
    before = model.get_weights()
    seen = _Epochs()
    try:
        model.fit(batches, epochs=3, shuffle=False, verbose=0, callbacks=[seen], **arguments)
    except tfscale.DataError as error:
        is_untouched = all(np.array_equal(*pair) for pair in zip(before, model.get_weights(), strict=True))
        return f"{error} {'untouched' if is_untouched else 'trained'}"
    return f"{seen.count} epochs"


def _loop(dp: tfscale.DataParallel, batches: Iterator[Any]) -> str:
    """Three epochs by `train_on_batch`."""
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]))
        model.compile(keras.optimizers.SGD(0.01), "mse")
    before = model.get_weights()
    try:
        for _, (x, y) in zip(range(12), batches, strict=False):
            model.train_on_batch(x, y)
    except tfscale.DataError as error:
        is_untouched = all(np.array_equal(*pair) for pair in zip(before, model.get_weights(), strict=True))
        return f"{error} {'untouched' if is_untouched else 'trained'}"
    return "3 epochs"


class _Epochs(keras.callbacks.Callback):
    count = 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del epoch, logs
        self.count += 1

"""Layers of Keras's own that look at all rows of a batch, on replicas and on one device."""

from __future__ import annotations

import contextlib
from typing import Any

import keras
import numpy as np

import tfscale
from tfscale.exact.batch_wide_layers import batch_wide_layers

SOUNDS = (
    10.0 ** np.random.default_rng(0).uniform(-6, 1, (13, 1)) * np.random.default_rng(1).normal(size=(13, 96))
).astype("float32")
PICTURES = (
    np.random.default_rng(0).uniform(20, 255, (13, 1, 1, 1)) * np.random.default_rng(1).uniform(size=(13, 4, 4, 3))
).astype("float32")


class Equalized(keras.Model):
    """In a functional model Keras 3.15 takes this layer for one that does nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.equalization = keras.layers.Equalization()
        self.out = keras.layers.Dense(2)

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.out(keras.ops.mean(self.equalization(inputs / 1.0, training=True) / 255.0, axis=(1, 2)))


def _spectrogram() -> keras.Model:
    inputs = keras.Input((96,))
    x = keras.layers.Dense(96, kernel_initializer="identity")(inputs)
    x = keras.layers.MelSpectrogram(fft_length=32, sequence_stride=16, num_mel_bins=4)(x)
    return keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Flatten()(keras.layers.Rescaling(0.02)(x))))


# Of 1 to 7 words, the longest in another replica's rows for each batch.
TEXTS = np.array([" ".join("abcdefg"[: 1 + 3 * row % 7]) for row in range(13)], dtype=object)


def _texts(length: int | None = None, more: Any = None) -> keras.Model:
    inputs = keras.Input((), dtype="string")
    words = keras.layers.TextVectorization(vocabulary=list("abcdef"), output_sequence_length=length)(inputs)
    x = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(8, 3)(words))
    return keras.Model(inputs, keras.layers.Dense(2)(x if more is None else more(x)))


def _texts_that_meet() -> keras.Model:
    return _texts(more=keras.layers.Lambda(lambda x: x - keras.ops.mean(x, axis=0)))


KINDS: dict[str, tuple[Any, np.ndarray, int]] = {
    "mel spectrogram": (_spectrogram, SOUNDS, 5),
    "mel spectrogram, last batch smaller than N": (_spectrogram, SOUNDS, 6),
    "equalization": (Equalized, PICTURES, 5),
    "equalization, last batch smaller than N": (Equalized, PICTURES, 6),
    "texts": (_texts, TEXTS, 5),
    "texts, last batch smaller than N": (_texts, TEXTS, 6),
    "texts, eagerly": (_texts, TEXTS, 5),
    "texts of one length": (lambda: _texts(4), TEXTS, 5),
    "texts that meet": (_texts_that_meet, TEXTS, 6),
}


def beside_plain(name: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """What three replicas and one device have after two epochs: weights, losses, scores and predictions."""
    build, rows, batch = KINDS[name]
    tfscale.simulate_replicas(3)
    dp = tfscale.DataParallel(global_batch=batch)
    keras.utils.set_random_seed(3)
    is_eager = name.endswith("eagerly")
    plain = _fitted(build(), rows, batch, is_eager)
    keras.utils.set_random_seed(3)
    with dp.scope():
        model = dp.prepare(build(), check="auto" if name.endswith("meet") else "off")
    return list(zip(_fitted(model, rows, batch, is_eager, dp), plain, strict=True))


def _fitted(model: keras.Model, rows: np.ndarray, batch: int, is_eager: bool, dp: Any = None) -> list[np.ndarray]:
    labels = np.arange(len(rows)) % 2
    arguments = keras.optimizers.SGD, keras.losses.SparseCategoricalCrossentropy
    with contextlib.nullcontext() if dp is None else dp.scope():
        model.compile(arguments[0](0.1), arguments[1](from_logits=True), run_eagerly=is_eager)
    losses = model.fit(rows, labels, batch_size=batch, epochs=2, shuffle=False, verbose=0).history["loss"]
    scores = model.evaluate(rows, labels, batch_size=batch, verbose=0)
    predictions = model.predict(rows, batch_size=batch, verbose=0)
    return [np.asarray(each) for each in (losses, scores, predictions, *model.get_weights())]


def in_micro_steps() -> str:
    """The error where a replica sees a part of its rows at a time."""
    tfscale.simulate_replicas(3)
    dp = tfscale.DataParallel(global_batch=12, micro_batch=2)
    with dp.scope():
        model = dp.prepare(_spectrogram())
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    try:
        model.fit(SOUNDS[:12], np.arange(12) % 2, batch_size=12, verbose=0)
    except tfscale.ModelError as error:
        return str(error)
    return ""


def drawn_parts() -> list[str]:
    """The names of those layers that are changed; what an augmentation draws is not."""
    model = keras.Sequential([keras.layers.RandAugment(), keras.layers.AugMix(), keras.layers.Equalization(name="own")])
    return [layer.name for layer in batch_wide_layers(model)]

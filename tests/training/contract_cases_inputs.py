"""Cases of the contract: every form of data that `fit` takes."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.training.contract import Case, Outcome, arrays_by_name, fitting, flat_arrays, observe_fit, state_of
from tests.training.models import (
    LABELS,
    TARGETS,
    TOKENS,
    WEIGHTS,
    X,
    adam,
    classifying,
    labelled,
    mlp,
    regressing,
    sgd,
)


class Batches(keras.utils.PyDataset):
    """Batches of 24 rows, and a last one of 10."""

    def __len__(self) -> int:
        return 11

    def __getitem__(self, index: int) -> Any:
        rows = slice(24 * index, 24 * (index + 1))
        return X[rows], LABELS[rows]


def _generated() -> Iterator[Any]:
    for _ in range(3):
        for start in range(0, 250, 24):
            yield X[start : start + 24], LABELS[start : start + 24]


def _two_inputs(form: Any) -> keras.Model:
    left, right = keras.Input((8,), name="left"), keras.Input((2,), name="right")
    joined = keras.layers.Concatenate()([left, right])
    return keras.Model(form(left, right), keras.layers.Dense(2)(joined))


def _pairs(form: Any) -> Any:
    return fitting(
        lambda: _two_inputs(form),
        classifying(),
        lambda: {"x": form(X, TARGETS), "y": LABELS, "batch_size": 24},
        evaluated=True,
    )


def _dataset(weights: bool = False) -> tf.data.Dataset:
    parts = (X, LABELS, WEIGHTS) if weights else (X, LABELS)
    return tf.data.Dataset.from_tensor_slices(parts).batch(24)


def _ragged() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32", ragged=True),
            keras.layers.Embedding(12, 4),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(2),
        ]
    )


def _sparse_data() -> dict[str, Any]:
    x = np.where(X > 0.5, X, 0).astype("float32")
    rows = tf.data.Dataset.from_tensor_slices((tf.sparse.from_dense(x), LABELS))
    return {"x": rows.batch(24)}


def _sparse() -> keras.Model:
    return keras.Sequential([keras.Input((8,), sparse=True), keras.layers.Dense(2)])


def _sparse_tokens() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((6,), dtype="int32", sparse=True),
            keras.layers.Embedding(12, 4),
            keras.layers.Flatten(),
            keras.layers.Dense(2),
        ]
    )


@keras.saving.register_keras_serializable()
class SegmentMeans(keras.layers.Layer):
    """The mean of the embeddings of a row, whose gradient has one row for each token that any row has."""

    def build(self, input_shape: Any) -> None:
        self.table = self.add_weight(shape=(12, 4), name="table")

    def call(self, tokens: tf.Tensor) -> tf.Tensor:
        segments = tf.repeat(tf.range(tf.shape(tokens)[0]), tokens.shape[1])
        flat = tf.reshape(tokens, [-1])
        table = tf.convert_to_tensor(self.table)
        return tf.sparse.segment_mean(table, flat, segments, sparse_gradient=True)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (input_shape[0], 4)


def _segments() -> keras.Model:
    return keras.Sequential([keras.Input((6,), dtype="int32"), SegmentMeans(), keras.layers.Dense(2)])


def _sparse_token_data() -> dict[str, Any]:
    rows = tf.data.Dataset.from_tensor_slices((tf.sparse.from_dense(TOKENS[:, :6]), LABELS))
    return {"x": rows.batch(24)}


def _from_generator(dp: Any) -> Outcome:
    with dp.scope():
        model = dp.prepare(mlp())
        model.compile(**classifying()())
    model.fit(_generated(), steps_per_epoch=11, epochs=2, verbose=0, shuffle=False)
    return {
        **state_of(model),
        "evaluate": flat_arrays(model.evaluate(_generated(), steps=11, verbose=0)),
    }


def _repeated(dp: Any) -> Outcome:
    with dp.scope():
        model = dp.prepare(mlp())
        model.compile(**classifying()())
    return observe_fit(model, {"x": _dataset().repeat(), "steps_per_epoch": 9})


def _unknown_length() -> tf.data.Dataset:
    """Where they end, whatever of Keras's step needs no batch is run once more."""
    return tf.data.Dataset.from_tensor_slices((X[:58], LABELS[:58])).filter(lambda *_: True).batch(24)


class CountsSteps(keras.Sequential):
    """A step of its own that counts itself, and whose second optimizer updates every other time."""

    def build(self, *args: Any) -> None:
        super().build(*args)
        self.count = self.add_weight(shape=(), initializer="zeros", dtype="int32", trainable=False, name="count")
        self.slow = self.add_weight(shape=(2,), initializer="ones", trainable=False, name="slow")

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, self(x), from_logits=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        self.count.assign_add(1)
        self.slow.assign(0.9 * self.slow + 0.1 * self.trainable_variables[-1])
        return {"mean": loss, "count": self.count + 0}


class TracksMeans(keras.Sequential):
    """Own steps, whose tracker of one number per batch counts itself where the batch is missing."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self) -> list[Any]:
        return [self.tracker]

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, self(x), from_logits=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}

    def test_step(self, data: Any) -> Any:
        x, y = data
        self.tracker.update_state(
            tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, self(x), from_logits=True))
        )
        return {"loss": self.tracker.result()}


def _two_heads() -> keras.Model:
    x = keras.Input((8,))
    return keras.Model(x, {"a": keras.layers.Dense(2, name="a")(x), "b": keras.layers.Dense(1, name="b")(x)})


def _validated(dp: Any) -> Outcome:
    """Data of one size and of several, by turns: what Keras counts without a batch is the size that it knows of."""
    one_size = _unknown_length().unbatch().batch(24, drop_remainder=True)
    with dp.scope():
        model = dp.prepare(mlp())
        model.compile(**classifying(_ENDING["AdamW"])())
    found = [
        model.fit(x, validation_data=other, shuffle=False, epochs=2, verbose=0).history
        for x, other in ((one_size, _unknown_length()), (_unknown_length(), one_size))
    ]
    found += [model.evaluate(x, verbose=0, return_dict=True) for x in (_unknown_length(), one_size)]
    held = [np.array(metric.result()) for metric in model.metrics if metric.name == "loss"]
    return {**state_of(model), "history": [each for logs in found for each in arrays_by_name(logs)], "held": held}


_ENDING: dict[str, Any] = {
    "Adam": adam,
    "AdamW": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.2),
    "Nadam": lambda: keras.optimizers.Nadam(0.01),
    "SGD, weight_decay": lambda: sgd(weight_decay=0.1),
    "a schedule": lambda: keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.2, 9)),
    "EMA": lambda: sgd(use_ema=True, ema_momentum=0.5, weight_decay=0.1),
    "LossScaleOptimizer": lambda: keras.optimizers.LossScaleOptimizer(adam(weight_decay=0.1), initial_scale=8.0),
}


def _buckets() -> tf.data.Dataset:
    """Texts by length, in batches of many sizes, of which the first need not be the largest."""
    lengths = np.random.default_rng(3).integers(1, TOKENS.shape[1] + 1, len(TOKENS))
    rows = [(tokens[:length], label) for tokens, label, length in zip(TOKENS, LABELS, lengths, strict=True)]
    specs = tf.TensorSpec((None,), tf.int32), tf.TensorSpec((), tf.int32)
    texts = tf.data.Dataset.from_generator(lambda: iter(rows), output_signature=specs)
    buckets = texts.bucket_by_sequence_length(lambda text, _: tf.shape(text)[0], [3, 5], [24, 16, 9])
    return buckets.apply(tf.data.experimental.assert_cardinality(len(list(buckets)))).prefetch(2)


def _of_texts() -> keras.Model:
    return keras.Sequential(
        [keras.layers.Embedding(64, 4), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(2)]
    )


CASES: dict[str, Case] = {
    **{
        f"input: unknown length, {name}": fitting(
            mlp, classifying(make), lambda: {"x": _unknown_length()}, epochs=3, evaluated=True
        )
        for name, make in _ENDING.items()
    },
    "input: unknown length, steps per call": fitting(
        mlp,
        classifying(_ENDING["AdamW"], steps_per_execution=2),
        lambda: {"x": _unknown_length()},
        epochs=3,
    ),
    "input: unknown length, run_eagerly": fitting(
        mlp, classifying(_ENDING["AdamW"], run_eagerly=True), lambda: {"x": _unknown_length()}, epochs=3
    ),
    "input: unknown length, a step of one's own": fitting(
        lambda: CountsSteps([keras.Input((8,)), keras.layers.Dense(2)]),
        lambda: {"optimizer": adam(weight_decay=0.1)},
        lambda: {"x": _unknown_length()},
        epochs=3,
    ),
    "input: unknown length, batches of one size": Case(_validated),
    "input: unknown length, two outputs": fitting(
        _two_heads,
        lambda: {"optimizer": adam(), "loss": {"a": "sparse_categorical_crossentropy", "b": "mse"}},
        lambda: {"x": (two := _unknown_length().map(lambda x, y: (x, {"a": y, "b": y}))), "validation_data": two},
        evaluated=True,
    ),
    "input: unknown length, a tracker of one's own": fitting(
        lambda: TracksMeans([keras.Input((8,)), keras.layers.Dense(2)]),
        lambda: {"optimizer": adam()},
        lambda: {"x": _unknown_length(), "validation_data": _unknown_length()},
        evaluated=True,
    ),
    "input: buckets of many sizes": fitting(_of_texts, classifying(adam), lambda: {"x": _buckets()}, evaluated=True),
    "input: arrays": fitting(mlp, classifying(), labelled(), evaluated=True),
    "input: list of arrays": _pairs(lambda left, right: [left, right]),
    "input: dict of arrays": _pairs(lambda left, right: {"left": left, "right": right}),
    "input: tf tensors": fitting(
        mlp,
        classifying(),
        lambda: {"x": tf.constant(X), "y": tf.constant(LABELS), "batch_size": 24},
        evaluated=True,
    ),
    "input: tf.data": fitting(mlp, classifying(), lambda: {"x": _dataset()}, evaluated=True),
    "input: tf.data with sample weights": fitting(
        mlp, classifying(), lambda: {"x": _dataset(weights=True)}, evaluated=True
    ),
    "input: tf.data, static shapes": fitting(
        mlp,
        classifying(),
        lambda: {"x": tf.data.Dataset.from_tensor_slices((X, LABELS)).batch(24, drop_remainder=True)},
    ),
    "input: tf.data, repeated": Case(_repeated),
    "input: PyDataset": fitting(mlp, classifying(), lambda: {"x": Batches()}, evaluated=True),
    "input: PyDataset, several threads": fitting(
        mlp, classifying(), lambda: {"x": Batches(workers=2, max_queue_size=4)}
    ),
    "input: generator": Case(_from_generator),
    "input: x without y": fitting(
        lambda: keras.Sequential(
            [
                keras.Input((8,)),
                keras.layers.Dense(4),
                keras.layers.ActivityRegularization(l2=0.1),
            ]
        ),
        lambda: {"optimizer": sgd()},
        lambda: {"x": X, "batch_size": 24},
    ),
    "input: ragged": fitting(
        _ragged,
        classifying(),
        lambda: {
            "x": tf.data.Dataset.from_tensor_slices((tf.RaggedTensor.from_tensor(TOKENS, padding=0), LABELS)).batch(24)
        },
    ),
    "input: sparse": fitting(_sparse, classifying(), _sparse_data),
    # One row of gradient for each column that any row has, and not for each row that has it.
    "input: sparse, an optimizer that squares": fitting(_sparse, classifying(adam), _sparse_data),
    "input: sparse, embedded": fitting(_sparse_tokens, classifying(adam), _sparse_token_data),
    "input: segments with a sparse gradient": fitting(
        _segments, classifying(adam), lambda: {"x": TOKENS[:, :6], "y": LABELS, "batch_size": 24}
    ),
    "input: sparse, micro-steps": fitting(_sparse, classifying(adam), _sparse_data, options={"micro_batch": 3}),
    "input: rows of rank 2": fitting(
        lambda: keras.Sequential(
            [
                keras.Input((4, 2)),
                keras.layers.Conv1D(4, 2, activation="tanh"),
                keras.layers.Flatten(),
                keras.layers.Dense(2),
            ]
        ),
        regressing(),
        lambda: {"x": X.reshape(250, 4, 2), "y": TARGETS, "batch_size": 24},
        evaluated=True,
    ),
    "validation_data": fitting(mlp, classifying(), labelled(validation_data=(X[:31], LABELS[:31])), evaluated=False),
    "validation_data, smaller than N": fitting(mlp, classifying(), labelled(validation_data=(X[:2], LABELS[:2]))),
    "validation_data, tf.data of another batch": fitting(
        mlp,
        classifying(),
        lambda: labelled(validation_data=tf.data.Dataset.from_tensor_slices((X, LABELS)).batch(7))(),
    ),
    "validation_split": fitting(mlp, classifying(), labelled(validation_split=0.2)),
}


def _quiet(run: Any) -> Any:
    """Without Keras's warning of data that it did not know the length of."""

    def quiet(dp: Any) -> Outcome:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Your input ran out of data")
            return run(dp)

    return quiet


CASES |= {
    name: dataclasses.replace(case, run=_quiet(case.run)) for name, case in CASES.items() if "unknown length" in name
}

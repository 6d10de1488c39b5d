"""Steps in which rows meet, of which the first batch shows nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.training.check.cases_step_check import Messages
from tests.training.models import sgd

_ROWS, _CLASSES = 8, 3
_RNG = np.random.default_rng(11)
_X = _RNG.normal(size=(_ROWS, 4)).astype("float32")
_SPREAD = 10 * _X
_Y = (np.arange(_ROWS) % _CLASSES).astype("int32")
_DIFFERENT = np.arange(_ROWS, dtype="int32")
_SAME, _ZEROS, _ONES = np.zeros(_ROWS, "int32"), np.zeros(_ROWS, "float32"), np.ones(_ROWS, "float32")
_FULL = np.full(_ROWS, 4, "int32")


_given: list[Any] = []


def _labels() -> Any:
    return _given[-1]


def _gaps(p: Any) -> Any:
    return tf.reduce_sum(tf.square(p[:, None] - p[None]), axis=2)


def _means_of_groups(p: Any, group: Any) -> Any:
    _, index = tf.unique(group)
    return tf.reduce_mean(tf.math.unsorted_segment_mean(tf.square(p[:, 0]), index, tf.reduce_max(index) + 1))


def _neighbours(p: Any, session: Any) -> Any:
    alike = tf.cast(session[1:] == session[:-1], p.dtype)
    return tf.reduce_sum(alike * tf.reduce_sum(tf.square(p[1:] - p[:-1]), axis=1)) / 8


def _pairs(p: Any, target: Any) -> Any:
    positive = tf.cast(target == 2, p.dtype)
    return tf.reduce_mean(positive[:, None] * (1 - positive)[None] * tf.nn.relu(1.0 - (p[:, :1] - p[None, :, 0])))


def _ranked(p: Any, query: Any) -> Any:
    pairs = tf.cast((query[:, None] == query) & (_labels()[:, None] > _labels()), p.dtype)
    return tf.reduce_mean(pairs * tf.nn.softplus(p[:, :1] - p[None, :, 0]))


def _covered(p: Any) -> Any:
    centred = p - tf.reduce_mean(p, axis=0)
    return tf.reduce_sum(tf.square(tf.matmul(centred, centred, transpose_a=True)))


# By what it is: the inputs, a number of each row, and what the step adds to its loss.
TERMS: dict[str, tuple[np.ndarray, np.ndarray, Callable[[Any, Any], Any]]] = {
    "rows of one identity": (_X, _DIFFERENT, lambda p, i: tf.reduce_mean(tf.cast(i[:, None] == i, p.dtype) * _gaps(p))),
    "rows of two classes": (_X, _SAME, lambda p, i: tf.reduce_mean(tf.cast(i[:, None] != i, p.dtype) * _gaps(p))),
    "a margin": (_SPREAD, _SAME, lambda p, i: tf.reduce_mean(tf.nn.relu(0.5 - tf.sqrt(_gaps(p) + 1e-6)))),
    "groups": (_X, _DIFFERENT, _means_of_groups),
    "neighbours of a session": (_X, _DIFFERENT, _neighbours),
    "a class that is not there": (_X, _SAME, _pairs),
    "a weight by row": (_X, _ZEROS, lambda p, w: tf.reduce_mean(w) * _covered(p)),
    "a share of another row": (_X, _ZEROS, lambda p, s: tf.reduce_mean(tf.square(p + s[:, None] * tf.reverse(p, [0])))),
    "pairs of one query and two classes": (_X, _DIFFERENT, _ranked),
    "of one query, which is a text": (_X, _DIFFERENT.astype(str).astype(object), _ranked),
    "of one time and two classes": (_X, 10.0 * _DIFFERENT.astype("float32"), _ranked),
    "a mean by weights": (_X, _ONES, lambda p, w: tf.reduce_sum(w * p[:, 0]) / tf.reduce_sum(w)),
    "up to the longest": (_X, _FULL, lambda p, n: tf.reduce_mean(p[:, : tf.reduce_max(n)])),
}
# Each row counts by itself, for whatever rows.
APART: dict[str, tuple[np.ndarray, np.ndarray, Callable[[Any, Any], Any]]] = {
    "weights": (_X, _ZEROS, lambda p, w: tf.reduce_mean(w * tf.reduce_sum(tf.square(p), axis=1))),
    "a penalty of one class": (_X, _SAME, lambda p, i: tf.reduce_mean(tf.cast(i == 2, p.dtype) * tf.abs(p[:, 0]))),
    "a margin of each row": (_SPREAD, _SAME, lambda p, i: tf.reduce_mean(tf.nn.relu(0.5 - tf.abs(p)))),
}


class HasTerm(keras.Model):
    """A classifier with one more term."""

    def __init__(self, term: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.net = keras.layers.Dense(4)
        self.term = term

    def call(self, inputs: Any) -> Any:
        return self.net(inputs)

    def train_step(self, data: Any) -> dict[str, Any]:
        (x, row), y = data
        _given.append(y)
        with tf.GradientTape() as tape:
            p = self.net(x)
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, p, from_logits=True))
            loss += self.term(p, row)
        variables = self.net.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"error": loss}


def said_of_terms() -> dict[str, str]:
    """By term: what is said before anything is updated."""
    messages = Messages()
    tfscale.simulate_replicas(2)
    dp = tfscale.DataParallel(global_batch=_ROWS)
    found = {}
    for name, (x, row, term) in (TERMS | APART).items():
        keras.utils.set_random_seed(1)
        messages.kept.clear()
        with dp.scope():
            model = dp.prepare(HasTerm(term))
            model.compile(sgd(learning_rate=0.05))
        try:
            model.fit((x, row), _Y, batch_size=_ROWS, epochs=1, verbose=0, shuffle=False)
            found[name] = "\n".join(messages.kept)
        except tfscale.ParityError as error:
            found[name] = str(error)
    return found

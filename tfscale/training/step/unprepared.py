"""What becomes of a model that is used under the scope as it is, and was not prepared?"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.replicas.callers import callers
from tfscale.replicas.owners import Fact, ReplicaGroup
from tfscale.replicas.replica_batch import local_replicas

_log = logging.getLogger(__name__)

CALLS = ("fit", "evaluate", "predict")

# How a model is prepared that is used under the scope as it is.
PREPARES = Fact[Callable[[keras.Model], Any]](ReplicaGroup, "prepares", lambda _: "models as they are used")


def prepare_others(strategy: tf.distribute.Strategy, prepare: Callable[[keras.Model], Any]) -> None:
    """Lets `prepare(model)` prepare every model of `strategy` that `fit`, `evaluate` or `predict` meet unprepared.

    Encoders, decoders and generators that are taken out of a prepared model are often used so.
    """
    PREPARES.set(strategy, prepare)


def is_prepared(model: keras.Model) -> bool:
    """Whether `prepare` has given `model` steps of its own."""
    return "make_predict_function" in vars(model)


def calling_model(names: Sequence[str] = CALLS) -> keras.Model | None:
    """The model of which one of these methods is running in this thread."""
    return next(iter(callers(keras.Model, *names)), None)


def prepare_other(model: keras.Model, strategy: tf.distribute.Strategy) -> None:
    """Prepares `model` as others of `strategy` are.

    Raises:
        ModelError: When none was.
    """
    prepare = PREPARES.of(strategy)
    if prepare is None:
        raise ModelError(
            "A model that is used under a strategy of tfscale must be prepared.\n"
            f"Received: model {model.name!r}, as it is. Call dp.prepare(model) first."
        )
    _log.info("model %r was not prepared, and is now, as it is used: batches of any size, checks as usual", model.name)
    prepare(model)


def refuse_on_workers(model: keras.Model, strategy: tf.distribute.Strategy) -> None:
    """Of single batches each worker would take all rows as its own.

    Raises:
        ModelError: Where there are several.
    """
    if local_replicas(strategy).on_several_workers:
        raise ModelError(
            "A model that is used on single batches by several workers must be prepared.\n"
            f"Received: model {model.name!r}, as it is. Call dp.prepare(model) first."
        )

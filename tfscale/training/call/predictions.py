"""What do the replicas predict for their rows, and is it what one replica predicts?"""

from __future__ import annotations

import functools
from typing import Any

import keras
import tensorflow as tf

from tfscale.exact.divided_calls import dividing_calls
from tfscale.exact.gather import gather_batch
from tfscale.exact.terms import Terms
from tfscale.framework.models import runs_eagerly
from tfscale.gradients.logical_replicas import LogicalReplicas
from tfscale.gradients.micro_steps import put_together
from tfscale.gradients.parts import Part
from tfscale.replicas.all_reduce import all_gather
from tfscale.replicas.own_share import make_lone_share, share_of
from tfscale.replicas.replica_batch import ReplicaBatch, places_of_rows
from tfscale.replicas.share import in_share
from tfscale.replicas.xla import run_compiled
from tfscale.training.check.first_step import Steps
from tfscale.training.step.logical_replicas import refuse_division_by_calls


def predict_step(
    model: keras.Model, batch: ReplicaBatch, *, terms: Terms, division: LogicalReplicas | None = None
) -> Any:
    """The predictions of `model` for this replica's rows.

    Args:
        model: Prepared.
        batch: This replica's rows.
        terms: Where it says how a model is divided whose rows meet.
        division: Whether the rows of each logical replica are predicted by themselves, as on any other device: what a
            row becomes depends, in the last bits, on how many others are beside it.
    """
    share = share_of(batch)
    if division is not None:
        refuse_division_by_calls(division if terms.divides else None)

        def predict(part: Part) -> Any:
            with in_share(part.share):
                data = _in_company(part.batch, share.global_examples)
                outputs = run_compiled(model, lambda: model.predict_step(data))
            own = tf.cast(part.share.num_examples, tf.int64)
            return tf.nest.map_structure(lambda rows: rows[:own], outputs)

        with in_share(share):
            return put_together(predict, batch, share, division)
    if terms.divides is None:
        with in_share(share):
            data = batch.data if share.num_replicas == 1 else _in_company(batch, share.global_examples)
            return run_compiled(model, lambda: model.predict_step(data))
    with in_share(share):
        data = gather_batch(batch)
    with dividing_calls(model, terms.divides, share, make_lone_share(share.global_examples)):
        outputs = model.predict_step(data)
    return tf.nest.map_structure(lambda rows: rows[share.first_row :], outputs)


def own_predictions(outputs: Any, batch: ReplicaBatch) -> Any:
    """The predictions of a replica's own rows, without those of rows that it borrowed.

    The prediction of a batch of one row may have lost the axis of the rows, and stays whole, as on one replica.

    Args:
        outputs: Structure of tensors `[rows, ...]`, of which the replica's own rows come first.
        batch: The rows that were given to it.
    """
    own = batch.num_examples
    if batch.global_examples is None:
        return tf.nest.map_structure(lambda rows: rows[:own], outputs)
    is_only_row = tf.logical_and(tf.equal(own, 1), tf.equal(batch.global_examples, 1))

    def of_own(rows: Any) -> Any:
        # Sparse and ragged ones keep all their axes.
        is_dense = isinstance(rows, tf.Tensor)
        return rows[: tf.where(is_only_row, tf.shape(rows, tf.int64)[0], own) if is_dense else own]

    return tf.nest.map_structure(of_own, outputs)


def _in_company(batch: ReplicaBatch, global_examples: Any) -> Any:
    """The data of a replica; its row twice where it has one, of a batch of several.

    `tf.squeeze(x)` leaves the axis of the rows out where there is a single one. One replica has several, and so shall
    each of many. How many there are is no longer in the shapes then.

    Args:
        batch: The rows of one replica, at least one.
        global_examples: Rows of the whole batch, a scalar.
    """
    flat = tf.nest.flatten(batch.data)
    for place in places_of_rows(batch):
        leaf = flat[place]
        # Of other kinds of tensors nothing is squeezed.
        if isinstance(leaf, tf.Tensor) and leaf.shape.rank and leaf.shape[0] in (None, 1):
            is_lone = tf.logical_and(tf.equal(tf.shape(leaf)[0], 1), tf.greater(global_examples, 1))
            # Others are handed on, and not copied.
            flat[place] = tf.cond(is_lone, functools.partial(_twice, leaf), functools.partial(tf.identity, leaf))
            flat[place].set_shape(tf.TensorShape([None]).concatenate(leaf.shape[1:]))
    return tf.nest.pack_sequence_as(batch.data, flat)


def _twice(rows: tf.Tensor) -> tf.Tensor:
    return tf.concat([rows, rows], 0)


def forms_of_predictions(model: keras.Model, terms: Terms) -> Steps:
    """The step of `predict` divided and as on one replica, for a look at it: predictions are its logs.

    Args:
        model: Prepared.
        terms: What is known of this kind of step.
    """

    def divided(batch: ReplicaBatch) -> Any:
        outputs = predict_step(model, batch, terms=terms)
        with in_share(share_of(batch)):
            return tf.nest.map_structure(all_gather, own_predictions(outputs, batch))

    def as_logs(outputs: Any) -> dict[str, Any]:
        return {"outputs": outputs}

    def alone(data: Any) -> dict[str, Any]:
        return as_logs(model.predict_step(data))

    return Steps(divided, alone, as_logs, begin=lambda: (), eager=runs_eagerly(model), tells="prediction")

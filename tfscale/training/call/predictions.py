"""What do the replicas predict for their rows, and is it what one replica predicts?"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tfscale.exact.divided_calls import dividing_calls
from tfscale.exact.gather import gather_batch
from tfscale.exact.terms import Terms
from tfscale.gradients.logical_replicas import LogicalReplicas
from tfscale.gradients.micro_steps import put_together
from tfscale.gradients.parts import Part
from tfscale.replicas.all_reduce import all_gather
from tfscale.replicas.own_share import make_lone_share, share_of
from tfscale.replicas.replica_batch import ReplicaBatch
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
                outputs = run_compiled(model, lambda: model.predict_step(part.batch.data))
            own = tf.cast(part.share.num_examples, tf.int64)
            return tf.nest.map_structure(lambda rows: rows[:own], outputs)

        with in_share(share):
            return put_together(predict, batch, share, division)
    if terms.divides is None:
        with in_share(share):
            return run_compiled(model, lambda: model.predict_step(batch.data))
    with in_share(share):
        data = gather_batch(batch)
    with dividing_calls(model, terms.divides, share, make_lone_share(share.global_examples)):
        outputs = model.predict_step(data)
    return tf.nest.map_structure(lambda rows: rows[share.first_row :], outputs)


def forms_of_predictions(model: keras.Model, terms: Terms) -> Steps:
    """The step of `predict` divided and as on one replica, for a look at it: predictions are its logs.

    Args:
        model: Prepared.
        terms: What is known of this kind of step.
    """

    def divided(batch: ReplicaBatch) -> Any:
        outputs = predict_step(model, batch, terms=terms)
        with in_share(share_of(batch)):
            return tf.nest.map_structure(lambda rows: all_gather(rows[: batch.num_examples]), outputs)

    def as_logs(outputs: Any) -> dict[str, Any]:
        return {"outputs": outputs}

    def alone(data: Any) -> dict[str, Any]:
        return as_logs(model.predict_step(data))

    return Steps(divided, alone, as_logs, begin=lambda: (), eager=model.run_eagerly, tells="prediction")

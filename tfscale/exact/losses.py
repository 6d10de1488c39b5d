"""What is the loss of the global batch, when each replica sees only its rows?

Each term obeys the convention of `share.py`: the global term is the sum over replicas of `weight_i * term_i`. Means
over examples obey it as they are. The others are corrected here, each with what it lacks:

=====================================  ==============================================  ====================
term                                   correction                                      sent for it
=====================================  ==============================================  ====================
mean over examples                     none                                            nothing
mean over unmasked entries             local / global number of unmasked entries       one number per term
`mean_with_sample_weight`              local / global sum of weights                   one number per term
`sum`, None, activity regularizers     1 / weight_i                                    nothing
one number, or a loss that mixes rows  computed on the gathered batch by every replica labels and predictions
=====================================  ==============================================  ====================
"""

from __future__ import annotations

import contextlib
import functools
import numbers
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.exact.attached import with_attached
from tfscale.exact.foreign import has_axis_of_rows, is_of_keras
from tfscale.exact.loss_weights import note_part
from tfscale.exact.terms import as_mean, is_recording
from tfscale.framework.losses import (
    COMPILED_LOSS_NAMES,
    arguments_of_function,
    copy_keras_mask,
    keras_mask,
    loss_entries,
    output_loss_trackers,
)
from tfscale.framework.models import flat_layers
from tfscale.replicas.all_reduce import all_gather, all_reduce_sum
from tfscale.replicas.graph_walk import QUOTIENTS
from tfscale.replicas.marks import mark_made_good
from tfscale.replicas.owners import Fact, PreparedModel
from tfscale.replicas.share import Share, current_share


class GlobalLoss(keras.losses.Loss):
    """One compiled loss term that obeys the convention of `share.py` inside a replica's step.

    Outside of a step, such as while shapes are inferred, it is the wrapped loss itself.

    Args:
        loss: The user's loss, as Keras resolved it.
    """

    def __init__(self, loss: keras.losses.Loss):
        super().__init__(name=loss.name, reduction=loss.reduction, dtype=loss.dtype)
        self.loss = loss

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """The wrapped loss before its reduction."""
        return self.loss.call(y_true, y_pred)

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Returns the term for this replica's rows; arguments as `keras.losses.Loss.__call__`."""
        share = current_share()
        if share is None or share.is_whole:
            return self.loss(y_true, y_pred, sample_weight)
        values = self._values(y_true, y_pred)
        if values is None or values.shape.rank == 0 or mixes_rows(self.loss, y_pred):
            _refuse_parts(self.loss, share)
            return self._on_gathered_batch(y_true, y_pred, sample_weight, share)
        with dividing_well():
            local = self.loss(y_true, y_pred, sample_weight)
        if self.loss.reduction in ("sum", "none", None):
            return as_mean(local, share)
        weighted = self.loss.reduction == "mean_with_sample_weight"
        masked = any(keras_mask(value) is not None for value in (y_pred, values))
        if not masked and not (weighted and sample_weight is not None):
            return local
        denominator = _Count(values)(y_true, y_pred, sample_weight if weighted else None) * share.is_counted(
            values.dtype
        )
        if share.denominators is None:
            (total,) = all_reduce_sum([denominator])
        else:
            total = share.denominators.total_of(denominator)
        note_part(share, denominator, total)
        return local * tf.math.divide_no_nan(denominator, total * tf.cast(share.weight, total.dtype))

    def _values(self, y_true: Any, y_pred: Any) -> tf.Tensor | None:
        """The loss before its reduction, or None when a user's class reduces in a way of its own."""
        if type(self.loss).__call__ is not keras.losses.Loss.__call__:
            return None
        convert = functools.partial(keras.ops.convert_to_tensor, dtype=self.loss.dtype)
        y_true, y_pred = keras.tree.map_structure(convert, (y_true, y_pred))
        return self.loss.call(y_true, y_pred)

    def _on_gathered_batch(self, y_true: Any, y_pred: Any, sample_weight: Any, share: Share) -> tf.Tensor:
        """Any function of the whole batch: every replica computes it, and keeps the gradient of its own rows."""
        batch = (y_true, y_pred, sample_weight)
        value = self.loss(*keras.tree.map_structure(lambda rows: gather_with_own_slope(rows, share), batch))
        gradient_only = value - tf.stop_gradient(value)
        return tf.stop_gradient(value) + as_mean(gradient_only, share)


@contextlib.contextmanager
def dividing_well() -> Iterator[None]:
    """Says of what is divided by meanwhile that it is put right afterwards."""
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    known = 0 if graph is None else len(graph.get_operations())
    yield
    if graph is not None:
        mark_made_good([op.inputs[1] for op in graph.get_operations()[known:] if op.type in QUOTIENTS])


def mixes_rows(loss: keras.losses.Loss, y_pred: Any = None) -> bool:
    """Whether a loss of Keras's own is, for one row, a function of other rows too.

    Args:
        loss: Any loss.
        y_pred: What it gets, whose rank tells which axis -2 is.

    Example:
        >>> import keras
        >>> [mixes_rows(loss) for loss in (keras.losses.Circle(), keras.losses.Dice(axis=(0, 1)), keras.losses.Dice())]
        [True, True, False]
    """
    if not is_of_keras(type(loss)):
        return False
    if isinstance(loss, keras.losses.Circle) or getattr(loss, "fn", None) is keras.losses.circle:
        return True
    rank = getattr(getattr(y_pred, "shape", None), "rank", None)
    return has_axis_of_rows(loss, arguments_of_function(loss), ranks=[] if rank is None else [rank])


def _refuse_parts(loss: keras.losses.Loss, share: Share) -> None:
    if share.is_part:
        raise ModelError(
            "With `micro_batch` or `logical_replicas` a loss must return one value per example, to be averaged or "
            "summed.\n"
            f"Received: loss {loss.name!r}, which makes one number of the whole batch. Return one value per example, "
            "or leave these out."
        )


class _Count(keras.losses.Loss):
    """Adds up masks and weights just as Keras does: the sum of a loss that is 1 everywhere.

    It may be a multiple of what Keras divides by, the same multiple on every replica.
    """

    def __init__(self, values: tf.Tensor):
        super().__init__(reduction="sum", dtype=values.dtype.name)
        self._ones = tf.ones_like(values)
        copy_keras_mask(values, self._ones)

    def call(self, y_true: Any, y_pred: Any) -> tf.Tensor:
        del y_true, y_pred
        return self._ones


def gather_with_own_slope(rows: Any, share: Share) -> Any:
    """The rows of all replicas in order, with the gradient of this replica's own rows only.

    Args:
        rows: Tensor `[n_i, ...]`, or None, or one number for all rows, as in `loss(scores, 1.0)`.
        share: This replica's share.

    Returns:
        Tensor `[n, ...]`; a number and None as they are.
    """
    # A tensor without rows is none of these: it may be of this replica's rows alone.
    if rows is None or isinstance(rows, numbers.Number):
        return rows

    def together(own: Any) -> Any:
        own = own[: tf.cast(share.num_examples, tf.int64)]
        gathered = tf.stop_gradient(all_gather(own))
        if not own.dtype.is_floating:
            return gathered
        end = share.first_row + tf.shape(own, out_type=tf.int64)[0]
        return tf.concat([gathered[: share.first_row], own, gathered[end:]], axis=0)

    return with_attached(rows, together)


def make_losses_global(model: keras.Model) -> None:
    """Makes every loss term of a built, compiled model obey the convention of `share.py`. Idempotent."""
    entries = loss_entries(model)
    for index, entry in enumerate(entries):
        if not isinstance(entry.loss, GlobalLoss):
            entries[index] = entry._replace(loss=GlobalLoss(entry.loss))
    for tracker in output_loss_trackers(model):
        tracker.update_state = functools.partial(_track_output_loss, tracker)


def _track_output_loss(tracker: keras.metrics.Mean, value: tf.Tensor, sample_weight: Any = None) -> None:
    """Logs the loss of one output as on one replica, where Keras weights a batch by its rows if it knows them."""
    share = current_share()
    if share is not None and (is_recording() or not share.is_whole):
        # What is compared has the same rows in shapes that tell their number, and in others.
        is_known = sample_weight is not None and share.rows_known and not is_recording()
        sample_weight = sample_weight if is_known else share.weight
    type(tracker).update_state(tracker, value, sample_weight=sample_weight)


# How many replicas are in a step of a model, and the losses that were taken out of it for that long.
IN_STEP = Fact[tuple[int, dict[tuple[Any, str], keras.losses.Loss]]](
    PreparedModel, "in_step", lambda each: f"{each[0]} replicas, without {len(each[1])} losses of its own"
)


@contextlib.contextmanager
def global_loss_attributes(model: keras.Model) -> Iterator[None]:
    """Makes the loss objects that a user's class holds as attributes obey the convention while its step is traced.

    A step of the user's own may call `self.loss_fn(y, y_pred)`, which Keras divides by the number of replicas. Replicas
    take turns in the middle of an eager step: the first one to come puts them in, and the last to go takes them out.
    """
    count, own = IN_STEP.of(model, (0, {}))
    if not count:
        own = _loss_attributes(model)
        for (layer, name), loss in own.items():
            setattr(layer, name, GlobalLoss(loss))
    IN_STEP.set(model, (count + 1, own))
    try:
        yield
    finally:
        left = IN_STEP[model][0] - 1
        IN_STEP.set(model, (left, own))
        if not left:
            IN_STEP.forget(model)
            for (layer, name), loss in own.items():
                setattr(layer, name, loss)


def _loss_attributes(model: keras.Model) -> dict[tuple[Any, str], keras.losses.Loss]:
    return {
        (layer, name): value
        for layer in flat_layers(model)
        for name, value in vars(layer).items()
        if isinstance(value, keras.losses.Loss)
        and name not in COMPILED_LOSS_NAMES
        # A value per example is as it is; whatever the step makes of it is met where it ends.
        and value.reduction not in ("none", None)
    }

"""How many rows does a micro-step have?

As many as the user says, or the most that fit: the rows of a replica, halved until forward and backward pass run
without running out of memory. That is tried on zeros before the first step, where a failure does no harm: in a step,
the other replicas would wait for the one that failed.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfscale.errors import BatchError, ModelError
from tfscale.exact.batch_norm import batch_norm_layers, is_synchronized
from tfscale.exact.plain_step import has_own_step
from tfscale.exact.randomness import make_general_generator
from tfscale.framework.models import call_model, compute_loss_of
from tfscale.gradients.changing_nothing import ChangingNothing
from tfscale.gradients.logical_replicas import LogicalReplicas
from tfscale.gradients.micro_steps import Division, MicroSteps, add_parts, in_own_share
from tfscale.gradients.parts import Part
from tfscale.replicas.agreement import least_of_workers
from tfscale.replicas.batch_rows import leaves_of, plan_rows
from tfscale.replicas.own_share import make_lone_share
from tfscale.replicas.owners import Fact, PreparedModel
from tfscale.replicas.replica_batch import ReplicaBatch

_log = logging.getLogger(__name__)
# A share of up to so many rows is looked at row by row; one of more in so many micro-steps.
_ONE_BY_ONE, _SHORT = 64, 5


class _Found(NamedTuple):
    """What "auto" found."""

    conditions: tuple[Any, ...]
    """Under which it was tried: with others it is tried again, and not whenever a train function is made anew."""
    rows: int


MICRO_BATCH = Fact[_Found](PreparedModel, "micro_batch", lambda found: found.rows)


def check_micro_batch(micro_batch: Any, largest_share: int | None) -> None:
    """Checks `micro_batch` of `DataParallel` and `prepare`.

    Args:
        micro_batch: As given.
        largest_share: Rows of the replica that has most, in a full batch; None where that is not known.

    Raises:
        BatchError: When it is neither "auto" nor None nor a positive integer up to `largest_share`.
    """
    if micro_batch is None:
        return
    is_count = isinstance(micro_batch, int) and not isinstance(micro_batch, bool) and micro_batch > 0
    if micro_batch != "auto" and not is_count:
        raise BatchError(
            '`micro_batch` must be a positive integer, "auto", or None for one pass over all rows of a replica.\n'
            f"Received: micro_batch={micro_batch!r}. Give the rows that fit into memory at a time."
        )
    if largest_share is None:
        raise BatchError(
            "`micro_batch` needs the global batch, of which it is a part.\n"
            f"Received: micro_batch={micro_batch!r} and no global_batch. Give both."
        )
    if is_count and micro_batch > largest_share:
        raise BatchError(
            f"`micro_batch` must not be larger than the rows of a replica in one step ({largest_share}).\n"
            f"Received: micro_batch={micro_batch}. Give fewer, or leave it out for one pass over all rows."
        )


def largest_share(global_batch: int, num_replicas: int) -> int:
    """Rows of the replica that has most of a full batch, where all have as many to the row."""
    return -(-global_batch // num_replicas)


def of_few_rows(division: Division, global_batch: int | None, num_replicas: int) -> Division:
    """Parts as these, for a look at a batch: micro-steps so short that a replica takes several.

    Args:
        division: Of the step.
        global_batch: Rows of a full batch.
        num_replicas: Of the job.

    Example:
        >>> of_few_rows(MicroSteps(4), 16, 2), of_few_rows(MicroSteps(100), 600, 2)
        (MicroSteps(rows=1, fixed=None), MicroSteps(rows=60, fixed=None))
    """
    if isinstance(division, LogicalReplicas):
        return division._replace(deterministic=False)
    share = largest_share(global_batch or 1, num_replicas)
    return MicroSteps(1 if share <= _ONE_BY_ONE else min(division.rows, share // _SHORT))


def halve_until_it_fits(rows: int, fits: Callable[[int], bool]) -> int:
    """The first of `rows`, ceil(rows / 2), ceil(rows / 4) ... 1 that fits.

    Args:
        rows: Rows of a replica in one step.
        fits: Whether so many at a time fit into memory.

    Raises:
        BatchError: When not even one does.

    Example:
        >>> from tfscale.training.step.micro_batch import halve_until_it_fits
        >>> halve_until_it_fits(100, lambda rows: rows <= 30)
        25
    """
    while not fits(rows):
        if rows == 1:
            raise BatchError(
                "One example must fit into the memory of a replica.\n"
                "Received: a model that ran out of memory on a single one. Use a smaller model or a larger device."
            )
        rows = -(-rows // 2)
    return rows


@dataclasses.dataclass(frozen=True)
class MicroBatch:
    """What `prepare` was asked for.

    Args:
        requested: A number of rows, "auto", or None.
        global_batch: Rows of a full batch, or None.
        strategy: Of the model.
        batch_norm: `"local"` or `"synchronized"`.

    Raises:
        BatchError: As `check_micro_batch`.
    """

    requested: Any
    global_batch: int | None
    strategy: tf.distribute.Strategy
    batch_norm: str

    def __post_init__(self) -> None:
        rows = self.global_batch and largest_share(self.global_batch, self.strategy.num_replicas_in_sync)
        check_micro_batch(self.requested, rows)

    def divide(self, model: keras.Model, data_spec: Any = None) -> MicroSteps | None:
        """The micro-steps of a step of `model`; None for one pass over all rows of a replica.

        Args:
            model: Built, compiled and prepared.
            data_spec: Structure of specs of a batch, for a training step; None for evaluation, where nothing is
                exchanged on the way.

        Raises:
            ModelError: When the step is the user's own, or "auto" cannot be tried.
        """
        if self.requested is None or self.global_batch is None:
            return None
        num_replicas, meets = self.strategy.num_replicas_in_sync, False
        share = largest_share(self.global_batch, num_replicas)
        if data_spec is not None:
            _refuse_own_step(model)
            meets = num_replicas > 1 and is_synchronized(model, self.batch_norm)
            if self.requested == "auto":
                find_micro_batch(model, self.strategy, data_spec, share)
        rows = _found_rows(model) or share if self.requested == "auto" else self.requested
        if rows >= share:
            return None
        make_general_generator(self.strategy)
        return MicroSteps(rows, -(-share // rows) if meets else None)


def _refuse_own_step(model: keras.Model) -> None:
    if has_own_step(model, "train_step"):
        raise ModelError(
            "`micro_batch` needs Keras's own `train_step`: one that a class defines itself is run as a whole.\n"
            f"Received: model {model.name!r} of class {type(model).__name__}. Override `compute_loss` in its place, or "
            "leave `micro_batch` out."
        )


def find_micro_batch(model: keras.Model, strategy: tf.distribute.Strategy, data_spec: Any, largest_share: int) -> None:
    """Tries once what `micro_batch="auto"` means for `model`, on every worker. All take the least of theirs.

    Args:
        model: Built, compiled and prepared.
        strategy: Its strategy.
        data_spec: Structure of specs of a batch, as `fit` gets it.
        largest_share: Rows of the replica that has most.
    """
    open_shapes = [leaf for leaf in tf.nest.flatten(data_spec) if leaf is not None and not _is_closed(leaf)]
    if open_shapes:
        raise ModelError(
            '`micro_batch="auto"` tries the model on zeros, and needs to know how large an example is.\n'
            f"Received: {open_shapes[0]}. Pad the examples to one length, or give micro_batch a number."
        )

    def fits(rows: int) -> bool:
        try:
            _try_pass(model, strategy, data_spec, largest_share, rows)
        except tf.errors.ResourceExhaustedError:
            _log.info("%d rows of model %r at a time do not fit into memory", rows, model.name)
            return False
        return True

    # All workers ask under the same conditions. A new `compile` makes another optimizer.
    conditions = largest_share, repr(data_spec), id(model.optimizer), len(model.trainable_weights)
    known = MICRO_BATCH.of(model)
    if known is not None and known.conditions == conditions:
        return
    found = least_of_workers(strategy, halve_until_it_fits(largest_share, fits))
    MICRO_BATCH.set(model, _Found(conditions, found))
    _log.info("model %r: micro_batch=%d of %d rows of a replica", model.name, found, largest_share)


def _found_rows(model: keras.Model) -> int | None:
    found = MICRO_BATCH.of(model)
    return None if found is None else found.rows


def describe_micro_batch(model: keras.Model, micro_batch: Any, largest_share: int) -> str:
    """One line for people; empty where nothing is to be said."""
    rows = _found_rows(model) if micro_batch == "auto" else micro_batch
    if rows is None:
        return f'{model.name}: micro_batch "auto", to be found before the first step.' if micro_batch else ""
    text = f"{model.name}: micro_batch {rows}, so {-(-largest_share // rows)} micro-step(s) of each replica's rows."
    if rows < largest_share and batch_norm_layers(model):
        text += " BatchNormalization normalises over the rows of one micro-step."
    return text


def _is_closed(leaf: Any) -> bool:
    shape = getattr(leaf, "shape", None)
    return not isinstance(leaf, tf.SparseTensorSpec | tf.RaggedTensorSpec) and None not in tuple(shape or ())[1:]


def _try_pass(
    model: keras.Model, strategy: tf.distribute.Strategy, data_spec: Any, largest_share: int, rows: int
) -> None:
    """Forward and backward pass of every replica here over zeros. Changes no variable, sends nothing."""
    # The second part finds the first one's sums in memory, as all others do. One by one: when a loop on one device runs
    # out of memory, TensorFlow 2.21 waits for ever for that of another.
    tried = min(2 * rows, largest_share)
    num_parts = -(-tried // rows)

    side_inputs = plan_rows(leaves_of(data_spec)).whole
    zeros = [
        None if spec is None else tf.zeros(spec.shape if place in side_inputs else (tried, *spec.shape[1:]), spec.dtype)
        for place, spec in enumerate(tf.nest.flatten(data_spec))
    ]

    def one(part: Part) -> list[Any]:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(part.batch.data)
        with tf.GradientTape() as tape, ChangingNothing(model):
            y_pred = call_model(model, x, training=True)
            loss = compute_loss_of(model, x, y, y_pred, sample_weight, training=True)
        return tape.gradient(loss, model.trainable_weights)

    def passes() -> tf.Tensor:
        count = tf.constant(tried, tf.int64)
        # As if this replica were the only one: so nothing waits for another.
        share = make_lone_share(count)
        whole = {str(place): () for place in side_inputs}
        data = tf.nest.pack_sequence_as(data_spec, zeros)
        batch = ReplicaBatch(data, count, count, tf.constant(0, tf.int64), whole)
        gradients = add_parts(lambda part: in_own_share(part, one), batch, share, MicroSteps(rows, num_parts))
        # One more copy, as in the pack that is sent.
        present = [tf.convert_to_tensor(each) for each in gradients if each is not None]
        return tf.reduce_sum(tf.concat([tf.reshape(tf.cast(each, tf.float32), [-1]) for each in present], 0))

    tf.function(lambda: strategy.run(passes), autograph=False)()

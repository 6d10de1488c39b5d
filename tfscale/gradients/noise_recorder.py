"""What do the replicas note of the gradients of a step, and where does it lie until it is taken?"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfscale.exact.batch_norm import synchronizes
from tfscale.exact.norms import squared_norm
from tfscale.framework.losses import loss_tracker
from tfscale.framework.optimizers import clips_gradients, micro_step_counter, trained_variables
from tfscale.gradients.noise_probe import probe
from tfscale.gradients.parts import Part
from tfscale.gradients.updaters import accumulates, innermost
from tfscale.replicas.agreement import gather_from_workers
from tfscale.replicas.replica_batch import local_replicas
from tfscale.replicas.share import Share
from tfscale.step_context import Slot

OFF = 0
CAPACITY = 256
"""Steps that are kept until they are taken."""


class Row(NamedTuple):
    """What all replicas have noted of one update, before its sums are divided by groups."""

    step: float
    """How often the optimizer was applied before."""
    seen: float
    """Examples of all steps up to it, of this `fit`."""
    examples: float
    """Of the steps of this update."""
    most_examples: float
    """Of any of them, times their number: as many, where they are equal."""
    is_clipped: float
    """1 where the optimizer clips it."""
    shards: float
    """With rows. Summed over replicas, as what follows."""
    loss_sum: float
    """What the loss tracker holds."""
    loss_count: float


_COUPLED = "synchronized BatchNormalization makes the gradient of a shard depend on the others' rows"
_OWN = Row._fields.index("shards")
# Of what a replica keeps until its gradients are added up: shards, steps, examples, the most of a step, squares.
_STEPS, _MOST, _FIRST_GROUP = 1, 3, 4


class Measured(NamedTuple):
    """What was measured in one update."""

    row: Row
    squares: list[float]
    """A of each group of variables: `sum_i w_i |g_i|^2`."""
    norms: list[float]
    """q of each: `|sum_i w_i g_i|^2`."""


class NoiseRecorder:
    """What the updates of one optimizer leave to be measured.

    Args:
        model: Prepared and built; its compiled optimizer is the one.
        strategy: Of the model.
        per_layer: Whether the variables of each layer are a group of their own.
    """

    def __init__(self, model: keras.Model, strategy: tf.distribute.Strategy, *, per_layer: bool):
        self._strategy = strategy
        self._replicas = local_replicas(strategy)
        self.per_layer = per_layer
        self.owner: Any = None
        """Who takes what is measured, while a `fit` lasts."""
        trained = trained_variables(innermost(model.optimizer)) or model.trainable_variables
        paths = [each.path.rpartition("/")[0] for each in trained]
        self.groups = list(dict.fromkeys(paths)) if per_layer else ["all"]
        """Names of the groups of variables."""
        self._places = [self.groups.index(path) if per_layer else 0 for path in paths]
        self.approximate: set[str] = set()
        """Why what is measured is not exact, as found while a step is traced."""
        # The optimizer leads here, and shall not be held from here.
        self._model = weakref.ref(model)
        with tf.device("CPU:0"):
            self._every = tf.Variable(OFF, dtype=tf.int64, trainable=False, name="noise_every")
        with strategy.scope():
            self._pending = _own(tf.zeros([_FIRST_GROUP + len(self.groups)]))
            self._rows = _own(tf.zeros([CAPACITY, len(Row._fields) + 2 * len(self.groups)], tf.float64))
            self._num_rows = _own(tf.constant(0, tf.int64))
            self._seen = _own(tf.constant(0.0, tf.float64))

    @property
    def _present(self) -> _Present:
        return _PRESENT.value.setdefault(self, _Present())

    def begin(self, every: int) -> None:
        """Switches it on, with nothing measured; or off.

        Args:
            every: Measures one update of so many; `OFF` for none.
        """
        for variable in (self._pending, self._num_rows, self._seen):
            for copy in self._strategy.experimental_local_results(variable):
                copy.assign(tf.zeros_like(copy))
        self.measure_every(every)

    def measure_every(self, every: int) -> None:
        """Measures one update of so many from now on."""
        self._every.assign(every)

    def seen(self) -> float:
        """Examples of this `fit` so far."""
        return float(self._strategy.experimental_local_results(self._seen)[0].numpy())

    def take(self) -> list[Measured]:
        """Returns what was measured since the last time; to be called by every worker."""
        results = self._strategy.experimental_local_results
        copies = [each.numpy() for each in results(self._rows)]
        count = int(results(self._num_rows)[0].numpy())
        for copy in results(self._num_rows):
            copy.assign(0)
        total, groups = copies[0].copy(), len(self.groups)
        # What all replicas have alike stays, and so does the last part: squares of sums.
        total[:, _OWN:-groups] = sum(copy[:, _OWN:-groups] for copy in copies)
        if self._replicas.on_several_workers:
            total[:, _OWN:-groups] = self._over_workers(total[:, _OWN:-groups])
        fields = len(Row._fields)
        return [
            Measured(Row(*row[:fields].tolist()), row[fields:-groups].tolist(), row[-groups:].tolist())
            for row in total[:count]
        ]

    def _over_workers(self, own: np.ndarray) -> np.ndarray:
        return np.sum(gather_from_workers(self._strategy, tf.constant(own)), axis=0)

    def is_due(self) -> tf.Tensor:
        """Whether the update at hand is measured."""
        model, every = self._model(), self._every.read_value()
        if model is None:
            return tf.constant(False)
        updates = tf.cast(tf.convert_to_tensor(micro_step_counter(innermost(model.optimizer)).value), tf.int64)
        return (every > 0) & tf.equal(updates % tf.maximum(every, 1), 0)

    def note_shard(self, gradients: Sequence[Any], weight: Any, factor: Any, share: Share, *, is_first: bool) -> None:
        """Notes the gradients of one shard.

        Args:
            gradients: One for each trained variable, of a loss that counts by its weight.
            weight: w_i.
            factor: By what they are multiplied besides.
            share: Of the rows.
            is_first: Whether they are the first rows of the replica in this step.
        """
        model = self._model()
        if share.num_replicas > 1 and model is not None and synchronizes(model):
            self.approximate.add(_COUPLED)
        self._present.is_probed = False
        self._present.places = [place for place, gradient in enumerate(gradients) if gradient is not None]
        if is_first and self._present.share is not share:
            self._seen.assign_add(tf.cast(share.global_examples, tf.float64))
        self._present.share = share

        def note() -> tf.Tensor:
            weighed = tf.cast(weight, tf.float32) * tf.cast(factor, tf.float32) ** 2
            squares = tf.math.divide_no_nan(self._by_group(gradients), weighed)
            is_counted = tf.cast(tf.cast(weight, tf.float32) > 0, tf.float32)
            before, rows = tf.convert_to_tensor(self._pending), share.global_examples
            more = [1.0, rows, tf.maximum(rows - before[_MOST], 0.0)] if is_first else [0.0, 0.0, 0.0]
            self._pending.assign(before + tf.concat([tf.stack([is_counted, *more]), squares], 0))
            return tf.constant(0)

        _when(self.is_due(), note)

    def note_probe(self, model: keras.Model, part: Part) -> None:
        """Measures the rows that one replica takes at once, once more in two halves; changes nothing else.

        The gradients of the step itself are not looked at: TensorFlow would compute what follows from them with other
        roundings, if something else used them. With several replicas or micro-steps there is a reduction or a loop
        between.
        """
        share, updater = part.share, innermost(model.optimizer)
        self._seen.assign_add(tf.cast(share.global_examples, tf.float64))
        self._present.is_probed = True

        def shard(gradients: Sequence[Any], weight: Any) -> tf.Tensor:
            squares = tf.math.divide_no_nan(self._by_group(gradients), tf.cast(weight, tf.float32))
            return tf.concat([[tf.cast(tf.cast(weight, tf.float32) > 0, tf.float32)], squares], 0)

        def note() -> tf.Tensor:
            found, gradients = probe(model, part, shard)
            # What is accumulated is clipped later.
            is_clipped = 0.0 if accumulates(updater) else _is_clipped(updater, gradients, 1.0)
            rows = share.global_examples
            facts = [micro_step_counter(updater).value, self._seen, rows, rows, is_clipped, found[0]]
            self._keep(facts, [found[1:], self._by_group(gradients)])
            return tf.constant(0)

        _when(self.is_due(), note)

    def note_total(self, updater: keras.optimizers.Optimizer, gradients: Sequence[Any], factor: Any) -> None:
        """Notes the gradients of the global batch, and keeps what was measured of this update.

        Args:
            updater: That applies them.
            gradients: Of all trained variables, or of those that have one.
            factor: By what they are multiplied.
        """
        if self._present.is_probed:
            return

        def note() -> tf.Tensor:
            pending = tf.convert_to_tensor(self._pending)
            self._pending.assign(tf.zeros_like(pending))
            shards, steps, examples, most = tf.unstack(pending[:_FIRST_GROUP])
            norms = self._by_group(gradients) / tf.cast(factor, tf.float32) ** 2
            is_clipped = _is_clipped(updater, gradients, factor)
            facts = [micro_step_counter(updater).value, self._seen, examples, most * steps, is_clipped, shards]
            self._keep(facts, [pending[_FIRST_GROUP:] / steps, norms])
            return tf.constant(0)

        _when(tf.convert_to_tensor(self._pending)[_STEPS] > 0, note)

    def _keep(self, facts: Sequence[Any], moments: Sequence[tf.Tensor]) -> None:
        head = [tf.cast(tf.convert_to_tensor(each), tf.float64) for each in (*facts, *self._loss())]
        row = tf.concat([tf.stack(head), *(tf.cast(each, tf.float64) for each in moments)], 0)
        place = tf.convert_to_tensor(self._num_rows)

        def keep() -> tf.Tensor:
            rows = tf.convert_to_tensor(self._rows)
            self._rows.assign(tf.tensor_scatter_nd_update(rows, [[place]], [row]))
            self._num_rows.assign_add(1)
            return tf.constant(0)

        # What does not fit is not measured.
        _when(place < CAPACITY, keep)

    def _by_group(self, gradients: Sequence[Any]) -> tf.Tensor:
        """The squares of each group, `[groups]`."""
        places = range(len(self._places)) if len(gradients) == len(self._places) else self._present.places
        found: list[list[tf.Tensor]] = [[] for _ in self.groups]
        for place, gradient in zip(places, gradients, strict=False):
            if gradient is not None:
                found[self._places[place]].append(squared_norm(gradient))
        return tf.stack([tf.add_n(each) if each else tf.constant(0.0) for each in found])

    def _loss(self) -> list[Any]:
        model = self._model()
        return [0.0, 0.0] if model is None else [loss_tracker(model).total.value, loss_tracker(model).count.value]


class _Present:
    """What a thread has met while it traces a step."""

    def __init__(self) -> None:
        self.places: list[int] = []
        """Of the variables that have a gradient."""
        self.share: Share | None = None
        """Whose examples were counted: a step may update twice."""
        self.is_probed = False
        """Whether the step has no shards but those of a probe."""


_PRESENT = Slot[weakref.WeakKeyDictionary[NoiseRecorder, _Present]]("noise", weakref.WeakKeyDictionary, shown=len)


def _when(condition: Any, action: Callable[[], tf.Tensor]) -> None:
    """Runs an action under a condition, as one operation of the graph.

    TensorFlow optimises a graph as a whole: what it finds twice it computes once, and fuses with other operations than
    before. So the rounding of the step itself would not be the same with the action in it.
    """
    if not tf.executing_eagerly():
        action = tf.function(action, autograph=False, experimental_attributes={"_noinline": True})
    tf.cond(condition, action, lambda: tf.constant(0))


def _own(value: tf.Tensor) -> tf.Variable:
    """A variable of which every replica has its own copy; assignments stay where they are made."""
    return tf.Variable(
        value,
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )


def _is_clipped(updater: keras.optimizers.Optimizer, gradients: Sequence[Any], factor: Any) -> tf.Tensor:
    """Whether the update differs from what it would be without clipping, as a number."""
    present = [gradient for gradient in gradients if gradient is not None]
    if not clips_gradients(updater) or not present:
        return tf.constant(0.0)
    factor = tf.cast(factor, tf.float32)
    if updater.clipvalue is not None:
        values = [each.values if isinstance(each, tf.IndexedSlices) else each for each in present]
        largest = tf.reduce_max([tf.reduce_max(tf.abs(tf.cast(each, tf.float32))) for each in values if _has(each)])
        return tf.cast(largest / factor > updater.clipvalue, tf.float32)
    norms = tf.sqrt(tf.stack([squared_norm(each) for each in present])) / factor
    if updater.clipnorm is not None:
        return tf.cast(tf.reduce_max(norms) > updater.clipnorm, tf.float32)
    return tf.cast(tf.norm(norms) > updater.global_clipnorm, tf.float32)


def _has(value: Any) -> bool:
    return value.shape.num_elements() != 0

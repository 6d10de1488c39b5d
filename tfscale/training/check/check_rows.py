"""On which rows is a step looked at?

On those of the first batch, but for one where all replicas would get as many: a mean of means shows where they do not.
What counts rows (`top_k`, a capacity, the five hardest of a batch) does nothing to a few. Where so many do not fit on
one device, a few are looked at.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfscale.replicas.agreement import agree_with_chief, gather_rows_of_workers
from tfscale.replicas.replica_batch import (
    SEVERAL_SIZES,
    LocalReplicas,
    ReplicaBatch,
    count_rows,
    has_rows,
    local_replicas,
    num_rows,
    places_of_rows,
    split_rows,
    take_rows,
    unsplit_batch,
)
from tfscale.training.step.state import shake

_ALL = 2**31 - 1
# One replica takes all rows that are looked at. What it computes of them is larger than they are, but not by so much
# that a device which trains on its share of larger batches could not hold it.
_MOST_BYTES = 2**28


class Amount(enum.Enum):
    """How many rows are looked at."""

    MOST = "most"
    """Those of the batch, divided unevenly, if they are not too large."""
    ALL = "all"
    """Those of the batch, for a step that runs on no other number."""
    FEW = "few"
    """One more than there are replicas."""


class CheckRows(NamedTuple):
    """Rows of a global batch, whole and divided."""

    whole: Any
    parts: tuple[ReplicaBatch, ...]
    """Of the replicas of this process."""
    num_rows: int
    replicas: LocalReplicas
    """Among which they are divided."""
    shaken_by: float = 0.0
    """Of what share of itself each input was changed at most."""

    @property
    def have_several_sizes(self) -> bool:
        """Whether parts of the batch have different numbers of rows."""
        return SEVERAL_SIZES in self.parts[0].whole

    @classmethod
    def of(
        cls,
        batch: Any,
        strategy: tf.distribute.Strategy,
        amount: Amount = Amount.MOST,
        *,
        logical: int | None = None,
    ) -> CheckRows:
        """The first rows of a batch.

        Args:
            batch: A global batch, one `ReplicaBatch` for each replica here, or what TensorFlow distributed.
            strategy: Whose replicas are to get them.
            amount: How many of them.
            logical: Among how many logical replicas they are divided.
        """
        replicas = local_replicas(strategy)._replace(logical=logical)
        parts, is_divided = _parts(batch, strategy)
        places = _places(parts[0].whole)
        few = replicas.total + 1
        most = few if amount is Amount.FEW else max(few, _that_fit(parts[0]))
        most = agree_with_chief(strategy, [_ALL if amount is Amount.ALL else most])[0]
        data = _concat_rows(parts, strategy, most, places) if is_divided else parts[0].data
        data = keras.tree.map_structure(_present, data)
        # Decided by the whole batch: beside a few rows, a side input may look like more of them.
        whole = _kept(parts[0].whole, places)
        held = (leaf for place, leaf in enumerate(tf.nest.flatten(data)) if has_rows(leaf) and place not in places)
        count = min(int(num_rows(next(held))), most)
        if amount is Amount.MOST:
            count = uneven_count(count, few, replicas.total)
        first = take_rows(data, 0, count, whole)
        return cls(first, split_rows(first, count, whole or (), replicas), count, replicas)

    def specs(self) -> list[Any]:
        """Types and shapes of everything in them."""
        leaves = tf.nest.flatten((self.whole, self.parts))
        return [tf.type_spec_from_value(leaf) if tf.is_tensor(leaf) else type(leaf) for leaf in leaves]

    def specs_of_any_number(self) -> Any:
        """Of the rows as a whole, with their number left open."""
        places = places_of_rows(self.parts[0])

        def spec(place: int, leaf: Any) -> Any:
            if not tf.is_tensor(leaf):
                return leaf
            own = tf.type_spec_from_value(leaf)
            return _of_open_rows(own) if place in places else own

        flat = [spec(place, leaf) for place, leaf in enumerate(tf.nest.flatten(self.whole))]
        return tf.nest.pack_sequence_as(self.whole, flat)

    def times(self, factor: float) -> CheckRows:
        """The same rows with all floating-point inputs multiplied; labels and weights stay."""
        return self._with_inputs(lambda leaf: leaf * factor)

    def apart(self, first: float, others: float) -> CheckRows:
        """The same rows, of which the first one's floating-point inputs are multiplied otherwise than the others'."""

        def change(leaf: tf.Tensor) -> tf.Tensor:
            if leaf.shape.rank in (None, 0) or leaf.shape[0] != self.num_rows:
                return leaf
            factors = tf.constant([first, *[others] * (self.num_rows - 1)], leaf.dtype)
            return leaf * tf.reshape(factors, [-1, *[1] * (leaf.shape.rank - 1)])

        return self._with_inputs(change)

    def changed(self, places: Collection[int], change: Callable[[Any], Any]) -> CheckRows:
        """The same rows with some of their leaves changed, if they are divided among the replicas: labels, too."""
        kept = _places(self.parts[0].whole)
        leaves = enumerate(tf.nest.flatten(self.whole))
        flat = [
            change(leaf) if place in places and place not in kept and has_rows(leaf) else leaf for place, leaf in leaves
        ]
        return self._divided_anew(tf.nest.pack_sequence_as(self.whole, flat))

    def shaken(self, share: float) -> CheckRows:
        """The same rows with each floating-point input changed by a share of itself, as `shake` does it.

        Whole numbers stay: as the index of a class, a count or a flag they are on the very edge, and beside it another.
        """
        changed = self._with_inputs(lambda leaf: tf.where(leaf == tf.round(leaf), leaf, shake(leaf, share)))
        return changed._replace(shaken_by=share)

    def _with_inputs(self, change: Callable[[tf.Tensor], tf.Tensor]) -> CheckRows:
        x, *others = self.whole if isinstance(self.whole, tuple) else (self.whole,)
        x = keras.tree.map_structure(
            lambda leaf: change(leaf) if isinstance(leaf, tf.Tensor) and leaf.dtype.is_floating else leaf, x
        )
        return self._divided_anew((x, *others) if isinstance(self.whole, tuple) else x)

    def _divided_anew(self, whole: Any) -> CheckRows:
        parts = split_rows(whole, self.num_rows, self.parts[0].whole, self.replicas)
        return self._replace(whole=whole, parts=parts)


def specs_of_any_size(parts: Sequence[ReplicaBatch], *, is_always: bool) -> list[ReplicaBatch] | None:
    """Specs of the parts that are the same for all, so that they are traced once; None where there are none.

    Args:
        parts: Of the replicas of this process.
        is_always: Whether the number of rows is open even where all have as many: then an axis of a known length is
            not that of the rows.
    """
    leaves = [tf.nest.flatten(part) for part in parts]
    of_rows = places_of_rows(parts[0])
    common: list[Any] = []
    for place, alike in enumerate(zip(*leaves, strict=True)):
        if not all(map(tf.is_tensor, alike)):
            common.append(alike[0])
            continue
        spec, *others = map(tf.type_spec_from_value, alike)
        spec = spec.most_specific_common_supertype(others)
        common.append(_of_open_rows(spec) if is_always and place in of_rows else spec)
    own = [tf.type_spec_from_value(leaf) if tf.is_tensor(leaf) else leaf for leaf in leaves[0]]
    if common == own or any(spec is None and leaf is not None for spec, leaf in zip(common, own, strict=True)):
        return None
    return [tf.nest.pack_sequence_as(part, common) for part in parts]


def _of_open_rows(spec: Any) -> Any:
    is_dense = isinstance(spec, tf.TensorSpec) and spec.shape.rank
    return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype) if is_dense else spec


def _present(leaf: Any) -> Any:
    return None if isinstance(leaf, tf.experimental.Optional) else leaf


def _parts(batch: Any, strategy: tf.distribute.Strategy) -> tuple[list[ReplicaBatch], bool]:
    """What the replicas of this process get, and whether it is that: else it is the one global batch of all workers."""
    if isinstance(batch, tuple) and batch and all(isinstance(part, ReplicaBatch) for part in batch):
        return list(batch), True
    if any(isinstance(leaf, tf.distribute.DistributedValues) for leaf in tf.nest.flatten(batch)):
        own = [
            tf.nest.map_structure(lambda leaf, index=index: strategy.experimental_local_results(leaf)[index], batch)
            for index in range(len(strategy.extended.worker_devices))
        ]
        return [part if isinstance(part, ReplicaBatch) else unsplit_batch(part) for part in own], True
    data = tf.nest.map_structure(lambda leaf: leaf if _is_special(leaf) else tf.convert_to_tensor(leaf), batch)
    rows, whole = count_rows(data)
    rows, replicas = tf.cast(rows, tf.int64), local_replicas(strategy)
    if replicas.on_several_workers:
        # What each worker augments by numbers of its own differs outside of the rows that it takes.
        return list(split_rows(data, rows, whole, replicas)), True
    return [ReplicaBatch(data, rows, rows, tf.constant(0, tf.int64), whole)], False


def uneven_count(count: int, few: int, num_replicas: int) -> int:
    """So many rows, or one less, that the replicas do not all get as many.

    Args:
        count: Rows that there are.
        few: As many as are enough.
        num_replicas: Among which they are divided.
    """
    return count - 1 if count > few and num_replicas > 1 and count % num_replicas == 0 else count


def _that_fit(part: ReplicaBatch) -> int:
    """How many rows like those of a replica's part are not too large for one device."""
    leaves = [leaf for leaf in tf.nest.flatten(part.data, expand_composites=True) if tf.is_tensor(leaf)]
    size = sum(leaf.dtype.size * int(tf.size(leaf)) for leaf in leaves)
    rows = max(int(part.num_examples), 1)
    return max(rows * _MOST_BYTES // max(size, 1), 1)


def _is_special(leaf: Any) -> bool:
    return leaf is None or tf.is_tensor(leaf) or isinstance(leaf, tf.experimental.Optional)


def _places(whole: Any) -> set[int]:
    """The leaves that every replica has whole."""
    known = dict(whole).items()
    return {int(place) for place, is_whole in known if place.isdigit() and (isinstance(is_whole, tuple) or is_whole)}


def _kept(whole: Any, places: set[int]) -> dict[str, Any]:
    """`ReplicaBatch.whole` of a few rows: rows of other sizes are open in number there, too."""
    are_rows = SEVERAL_SIZES in whole
    found: dict[str, Any] = {str(place): tf.constant(True) if are_rows else () for place in places}
    return found | ({SEVERAL_SIZES: ()} if are_rows else {})


def _concat_rows(
    parts: Sequence[ReplicaBatch], strategy: tf.distribute.Strategy, count: int, whole: Collection[int]
) -> Any:
    """So many rows of all workers' parts at least, if there are."""
    counted = [part for part in parts if int(part.num_examples)]
    own = [take_rows(part.data, 0, int(part.num_examples), part.whole) for part in counted] or [parts[0].data]

    def together(*leaves: Any) -> Any:
        if not has_rows(leaves[0]):
            return leaves[0]
        if isinstance(leaves[0], tf.SparseTensor):
            return tf.sparse.concat(axis=0, sp_inputs=list(leaves))
        return tf.concat(list(leaves), axis=0)

    leaves = list(zip(*(tf.nest.flatten(part) for part in own), strict=True))
    flat = [each[0] if place in whole else together(*each) for place, each in enumerate(leaves)]
    # A side input is on every worker already; weights that `train_on_batch` was not given are nowhere.
    divided = [place for place, leaf in enumerate(flat) if place not in whole and leaf is not None]
    everyone = gather_rows_of_workers(strategy, take_rows([flat[place] for place in divided], 0, count))
    for place, leaf in zip(divided, everyone, strict=True):
        flat[place] = leaf
    return tf.nest.pack_sequence_as(own[0], flat)

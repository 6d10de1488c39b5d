"""Is what a step makes of its rows a mean over the examples, or a sum?

A loss written by hand, a value that `add_loss` is given, a number that a metric is updated with: Keras takes whatever
comes, and on one device it makes no difference. On N replicas it does: the mean of the global batch is
`sum_i(weight_i * mean_i)`, and the sum is `sum_i(sum_i)`. Each such term is met where it happens, in the order of the
step. Unless it was found to be a sum (`first_step.py`), or is said to be one (`sum_over_examples`), it is a mean.
"""

from __future__ import annotations

import collections
import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfscale.exact.overflow import overflowing_as_one
from tfscale.framework.autograph import left_alone
from tfscale.replicas.all_reduce import all_reduce_sum
from tfscale.replicas.share import Share, current_share, in_share
from tfscale.step_context import Slot

MEAN, SUM = "mean", "sum"
# Says of a layer whether its calls are divided.
Divides = Callable[[Any], bool]


class Term(NamedTuple):
    """One of a step, the same in every trace of it."""

    kind: str
    """`"gradients"`, `"read"` (the gradient of one read of a variable), `"add_loss"`, `"metric"` or `"log"`."""
    owner: int
    """Identity of the optimizer, variable, layer or metric that gets it; 0 for logs."""
    place: int
    """Which of those that the owner gets in one step."""
    label: str
    """For people."""


class Record(NamedTuple):
    """What a step that is looked at has found of one term: as of the global batch, by either hypothesis."""

    if_mean: list[Any]
    if_sum: list[Any]
    names: list[str]
    """Of each of the values."""


class Recorder:
    """Takes down the terms of one step on one replica, for comparison.

    Args:
        graph: In which the step is traced; None when it runs eagerly.
    """

    def __init__(self, graph: Any):
        self._graph = graph
        self.records: dict[Term, Record] = {}
        self._left: list[tuple[Term, list[Any], list[str], Share]] = []

    def note(self, term: Term, values: Sequence[Any], names: Sequence[str], share: Share, *, is_global: bool) -> None:
        """Takes down `values` of this replica, or of the global batch already. Sent over the link for the former."""
        # Also from inside of a condition, loop or function, if the values are of outside: no others get out of there.
        leaves = [leaf for leaf in tf.nest.flatten(values, expand_composites=True) if leaf is not None]
        if self._graph is None:
            if not any(map(tf.is_symbolic_tensor, leaves)):
                self._note(term, values, names, share, is_global=is_global)
        elif all(leaf.graph is self._graph for leaf in leaves):
            with self._graph.as_default():
                self._note(term, values, names, share, is_global=is_global)

    def _note(self, term: Term, values: Sequence[Any], names: Sequence[str], share: Share, *, is_global: bool) -> None:
        dense = [tf.convert_to_tensor(value) for value in values if value is not None]
        named = [name for name, value in zip(names, values, strict=True) if value is not None]
        if is_global or share.num_replicas == 1:
            self.records[term] = Record(dense, dense, named)
        elif self._graph is None:
            self._left.append((term, dense, named, share))
        else:
            self._send(term, dense, named, share)

    def _send(self, term: Term, dense: list[Any], named: list[str], share: Share) -> None:
        counted = [tf.math.multiply_no_nan(value, share.is_counted(value.dtype)) for value in dense]
        weighted = [tf.math.multiply_no_nan(value, tf.cast(share.weight, value.dtype)) for value in dense]
        parts = [*weighted, *counted]
        with in_share(share):
            sums = overflowing_as_one(parts, all_reduce_sum(parts))
        self.records[term] = Record(sums[: len(dense)], sums[len(dense) :], named)

    def finish(self) -> None:
        """Sends what an eager step has left: in the middle of it, other replicas would have their turn.

        Keras keeps what it needs from one line to the next in layers that all of them share, such as their losses.
        """
        for term, dense, named, share in self._left:
            self._send(term, dense, named, share)


class Terms:
    """What is known of the terms of one model's steps."""

    def __init__(self) -> None:
        self.sums: set[Term] = set()
        """Those that are sums over the examples."""
        self.owners: dict[int, Any] = {}
        """Whoever was met in a step, by identity, in the order of the first meeting."""
        self.tells_whole_results = False
        """Whether the step computes something of a metric's result, and has to be told that of all replicas at once."""
        self.sums_where_read = False
        """Whether the step works on gradients before an optimizer gets them, and has to be given those of all rows."""
        self.divides: Divides | None = None
        """For a step that mixes rows, and is given all of them: of which layers the calls are divided."""
        self.gathered: set[int] = set()
        """Identities of the metrics that need the whole batch at once."""

    @property
    def gradients_are_sums(self) -> bool:
        """Whether any gradient is known to be that of a sum. A step that mixes both kinds is found by its check."""
        return any(term.kind in ("gradients", "read") for term in self.sums)

    def __repr__(self) -> str:
        return f"Terms(sums={sorted(f'{term.kind} {term.label}' for term in self.sums)})"


_TERMS = Slot[Terms | None]("terms")
_RECORDER = Slot[Recorder | None]("recorder")
# Of each owner, how many terms were met in the pass.
_COUNTS = Slot["collections.Counter[tuple[str, int]]"]("terms_met", collections.Counter, shown=len)
_SUMS = Slot[list[Any]]("sums", list, shown=len)


@contextlib.contextmanager
def meeting_terms(terms: Terms, recorder: Recorder | None = None) -> Iterator[None]:
    """Counts and weights the terms of the step that this thread traces or runs meanwhile."""
    # What is looked at stays looked at.
    looking = _RECORDER.carrying(recorder or _RECORDER.value)
    with _TERMS.carrying(terms), looking, counting_anew(), noting_sums():
        yield


@contextlib.contextmanager
def noting_sums() -> Iterator[None]:
    """Begins with none for a function of a loop by hand."""
    with _SUMS.carrying([]):
        yield


def note_sums(sums: Sequence[Any]) -> None:
    """Notes gradients that are those of the global batch already, and are not to be summed again."""
    leaves = [leaf for leaf in tf.nest.flatten(list(sums), expand_composites=True) if tf.is_tensor(leaf)]
    # Kept, so that no other operation gets their identity while this step lasts.
    _SUMS.value.extend(leaves if tf.executing_eagerly() else [leaf.op for leaf in leaves])


def noted_sums() -> set[int]:
    """Identities of the operations (of the tensors, eagerly) that `note_sums` noted in this step."""
    return set(map(id, _SUMS.value))


def is_recording() -> bool:
    """Whether the step of this thread is looked at: then everything is exact that can be."""
    return _RECORDER.value is not None


def meet_term(
    kind: str, owner: Any, label: str, values: Sequence[Any], names: Sequence[str] = (), *, is_global: bool = False
) -> bool:
    """Meets the next term of its owner in this step; returns whether it is a sum.

    Args:
        kind: As in `Term`.
        owner: That gets it; None for logs, which are told apart by their label.
        label: For people.
        values: Tensors, `tf.IndexedSlices` or None.
        names: Of the values.
        is_global: Whether they are those of the global batch already.
    """
    share = current_share()
    terms = _TERMS.value
    if share is None or terms is None:
        return False
    identity = hash(label) if owner is None else id(owner)
    term = Term(kind, identity, _COUNTS.value[kind, identity], label)
    _COUNTS.value[kind, identity] += 1
    if owner is not None and identity not in terms.owners:
        terms.owners[identity] = weakref.ref(owner)
    if _RECORDER.value is not None:
        _RECORDER.value.note(term, values, names or [label] * len(values), share, is_global=is_global)
    return term in terms.sums


@contextlib.contextmanager
def counting_anew() -> Iterator[None]:
    """Begins with the first term of each owner again, for one more pass over other rows of the same step."""
    with _COUNTS.carrying(collections.Counter()):
        yield


def is_gathered(metric: Any) -> bool:
    """Whether a metric is to be given the rows of all replicas."""
    return _TERMS.value is not None and id(metric) in _TERMS.value.gathered


def tells_whole_results() -> bool:
    """Whether metrics tell the step at hand the results of all replicas, at the price of a collective each."""
    return _TERMS.value is not None and _TERMS.value.tells_whole_results


def sums_where_read() -> bool:
    """Whether gradients are summed over the replicas on their way to the variables, not by whoever applies them."""
    return _TERMS.value is not None and _TERMS.value.sums_where_read


def gradients_are_sums() -> bool:
    """Whether the gradients of the step at hand are those of sums."""
    return _TERMS.value is not None and _TERMS.value.gradients_are_sums


def as_mean(value: Any, share: Share) -> Any:
    """A sum over this replica's examples as what `share.py` asks for: `sum_i(weight_i * value_i)` is the whole sum."""
    return tf.math.divide_no_nan(value, tf.cast(share.weight, value.dtype))


@left_alone
def sum_over_examples(loss: Any) -> Any:
    """Says that a loss written by hand is a sum over the examples of the batch, and not a mean.

    To be used where the loss is computed, in `train_step`, `compute_loss` or a layer's `add_loss`:
    `loss = tfscale.sum_over_examples(tf.reduce_sum(errors))`. With n_i of n examples on replica i it returns
    `loss_i * n / n_i`, whose mean over all examples is the sum of all `loss_i`.

    Args:
        loss: Float tensor of any shape, a sum over the examples that this replica holds.

    Returns:
        A tensor of the same shape and dtype; `loss` itself on one replica and outside of a step.

    Example:
        >>> import tensorflow as tf, tfscale
        >>> float(tfscale.sum_over_examples(tf.constant(3.0)))
        3.0
    """
    share, loss = current_share(), tf.convert_to_tensor(loss)
    return loss if share is None or share.is_whole else as_mean(loss, share)

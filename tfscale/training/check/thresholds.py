"""Does a step go by whether a number of the batch lies beyond a threshold?

`tf.clip_by_global_norm(gradients, 20.0)`, `tf.where(loss > 40.0, ...)`, `tf.maximum(mean_divergence, 3.0)`: as long as
all numbers lie on one side, each replica may as well take that of its own rows, and so may the first batch. A later
one with an outlier shows it, or none that is looked at. No number tells that in advance, but the graph does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfscale.replicas.graph_walk import compares_with_itself
from tfscale.replicas.replica_walk import LOOPS, Frame, ReplicaWalk, only_reads
from tfscale.training.check.axes_of_rows import AxesOfRows, is_of_rows
from tfscale.training.check.loops_of_rows import LoopsOfRows, kept_from_row_to_row

# Linear on either side of something.
_BENT = {
    *("Abs", "Ceil", "ClipByValue", "Elu", "Floor", "LeakyRelu", "Maximum", "Minimum"),
    *("Relu", "Relu6", "Rint", "Round", "Selu", "Sign"),
    # Which of several numbers, or where among them; how often one is in another.
    *("ArgMax", "ArgMin", "Bucketize", "LowerBound", "Max", "Min", "TopKV2", "UpperBound"),
    *("FloorDiv", "FloorMod", "Mod", "TruncateDiv", "TruncateMod"),
}
# Nobody knows what a function of Python makes of a number: `tf.numpy_function`, `tf.py_function`.
OF_PYTHON = frozenset(("EagerPyFunc", "PyFunc", "PyFuncStateless"))
_CHOICES = frozenset(("Select", "SelectV2"))
_BRANCHES = frozenset(("If", "StatelessIf", "Case"))
# In a branch with nothing else, nothing is computed.
_SAYS = frozenset(("Assert", "PrintV2", "Const", "Identity", "NoOp", "Placeholder", "StringFormat"))


class Asked(NamedTuple):
    """What an operation does to a number, if that is a replica's own."""

    number: Any
    """A tensor; what has an axis of rows is none."""
    place: int
    """Which of the operation's tensors it is."""
    beside: Any = None
    """Another one that has to be a replica's own as well; None where it does not matter."""
    lengths: tuple[int | None, ...] | None = None
    """Those that may be of an axis of rows, if not all of the tensor's."""
    axes: tuple[int, ...] | None = None
    """Which of its axes these lengths are, if they are its own."""
    axis: int | None = None
    """Along which it must not have its rows; None where it must not be one number, or one array, of several rows."""

    @property
    def shape(self) -> tuple[int | None, ...] | None:
        """Lengths that must not be of rows; None where nobody knows."""
        if self.lengths is not None or self.number.shape.rank is None:
            return self.lengths
        return tuple(self.number.shape) if self.axis is None else (self.number.shape[self.axis],)


def decided_apart(
    strategy: tf.distribute.Strategy, first: int, results: Any, sizes: Collection[int | None]
) -> list[str]:
    """Names of the operations that go by a number, of a replica's own rows, that is not one of each row.

    Loops over rows are left out: in them, each number is one row's. So is what nothing is made of, such as the form
    for one row that tf.vectorized_map leaves behind.

    Args:
        strategy: That of the step. To be called in the graph in which its `run` was.
        first: How many operations the graph had before the step.
        results: What its `run` returned.
        sizes: For how many rows it was traced, by each replica; None for any number.
    """
    return taken_apart(strategy, first, results, sizes, goes_by)


def taken_apart(
    strategy: tf.distribute.Strategy,
    first: int,
    results: Any,
    sizes: Collection[int | None],
    asks: Callable[[Any], list[Asked]],
    *,
    counts_values: bool = False,
    keeps: bool = False,
    rows: Sequence[int | None] = (),
    of_several: bool = False,
) -> list[str]:
    """As `decided_apart`, of operations of any kind.

    Args:
        strategy: As there.
        first: As there.
        results: As there.
        sizes: As there.
        asks: Of which numbers an operation makes what no sum over the replicas makes good.
        counts_values: Whether how many rows a mask leaves is such a number, too.
        keeps: Whether what a loop over rows keeps from one row to the next, and does not add up, is one, too.
        rows: For how many it was traced, by replica, where all are known.
        of_several: Whether the numbers of rows are those of several data sets: one replica may have as many as another.
    """
    walk = ReplicaWalk(strategy, counts_values=counts_values)
    axes, shapes = AxesOfRows(walk), dict[tuple[str, int], list[Any]]()
    asking = _Asking(walk, LoopsOfRows(walk, axes, sizes), asks, keeps)
    asked = _asked(asking, Frame(tf.compat.v1.get_default_graph()), _tensors(strategy, results), first)
    replicas: dict[tuple[str, int], list[int]] = {}
    for name, _, each in asked:
        key = _without_replica(name), each.place
        shapes.setdefault(key, []).append(each.shape)
        replicas.setdefault(key, []).append(_replica(name))
    own = {key: _sizes_met(each, sizes, rows) for key, each in replicas.items()}
    return sorted(
        {
            name
            for name, frame, each in asked
            for key in [(_without_replica(name), each.place)]
            if _is_of_rows_together(frame, each, [each.shape] if of_several else shapes[key], own[key], axes)
            # What a replica does with one row, and others do not, is done to that row.
            and (own[key] != {1} or len(sizes) == 1)
            and walk.may_differ_by_rows(frame, each.number)
            and (each.beside is None or walk.may_differ_by_rows(frame, each.beside))
        }
    )


def _sizes_met(replicas: Sequence[int], sizes: Collection[int | None], rows: Sequence[int | None]) -> Any:
    """For how many rows those replicas were traced that have an operation: `tf.vectorized_map` of one row has none."""
    # In a function that is called by replicas names do not tell them apart.
    is_known = len(set(replicas)) == len(replicas) < len(rows) and max(replicas) < len(rows)
    return {rows[each] for each in replicas} if is_known and None not in rows else sizes


def _is_of_rows_together(
    frame: Frame, asked: Asked, shapes: Sequence[Any], sizes: Collection[int | None], axes: AxesOfRows
) -> bool:
    """Whether what an operation does to a number concerns several rows at once, if the number is a replica's own."""
    if asked.axis is None:
        return not may_have_rows(shapes, sizes) or _has_features_only(frame, asked, shapes, sizes, axes)
    if len(sizes) > 1 and None not in sizes and len(shapes) > 1:
        return all(len(set(lengths)) > 1 for lengths in zip(*shapes, strict=True))
    if asked.lengths is not None or asked.shape is None:
        return False
    (length,) = asked.shape
    return (length is None or length in sizes) and axes.holds(frame, asked.number, asked.axis) is True


def _has_features_only(
    frame: Frame, asked: Asked, shapes: Sequence[Any], sizes: Collection[int | None], axes: AxesOfRows
) -> bool:
    """Whether the axes of a number that are as long as if they were of rows are known to be of something else."""
    # An axis of one row may be gone without a trace.
    is_untold = any(each in (None, 1) for each in sizes) or (asked.lengths is not None and asked.axes is None)
    if is_untold or (len(sizes) > 1 and len(shapes) > 1):
        return False
    shape = asked.number.shape
    asked_axes = range(shape.rank) if asked.axes is None else asked.axes
    as_long = [axis for axis in asked_axes if may_have_rows([(shape[axis],)], sizes)]
    return all(axes.holds(frame, asked.number, axis) is False for axis in as_long)


def may_have_rows(shapes: Sequence[tuple[int, ...]], sizes: Collection[int | None]) -> bool:
    """Whether one axis of a tensor may be that of the rows, as far as its known shapes tell.

    Args:
        shapes: That it has on each replica.
        sizes: For how many rows the replicas were traced; None for any number.

    Example:
        >>> from tfscale.training.check.thresholds import may_have_rows
        >>> may_have_rows([(8,)], {None}), may_have_rows([(3, 8), (2, 8)], {3, 2}), may_have_rows([(12,)] * 2, {3, 2})
        (False, True, False)
        >>> may_have_rows([(6, 8)], {3}), may_have_rows([(8,)], {3}), may_have_rows([()], {1})
        (True, False, False)
        >>> may_have_rows([(0, 8)], {0}), may_have_rows([(8,)], {0})
        (True, False)
    """
    if None in sizes:
        return False
    if len(sizes) > 1 and len(shapes) > 1:
        return len(set(shapes)) > 1
    return any(is_of_rows(length, sizes) for shape in shapes for length in shape)


def _tensors(strategy: tf.distribute.Strategy, results: Any) -> list[Any]:
    flat = [local for each in tf.nest.flatten(results) for local in strategy.experimental_local_results(each)]
    return [each for each in flat if tf.is_symbolic_tensor(each)]


class _Asking(NamedTuple):
    """What is asked of the operations of a step."""

    walk: ReplicaWalk
    loops: LoopsOfRows
    asks: Callable[[Any], list[Asked]]
    keeps: bool


def _asked(asking: _Asking, frame: Frame, results: Sequence[Any], first: int = 0) -> list[tuple[str, Frame, Asked]]:
    """(name of an operation, the frame it is in, a number by which it goes)."""
    walk, operations = asking.walk, frame.graph.get_operations()[first:]
    used = _used(walk, frame, operations, results)
    found = []
    for op in operations:
        if op.name not in used:
            continue
        found += [(op.name, frame, each) for each in asking.asks(op) if each.axis is not None or _is_known(each)]
        if op.type in LOOPS:
            found += _asked_of_loop(asking, frame, op)
            continue
        bodies = walk.bodies(op, frame)
        if op.type in _BRANCHES and not all(map(_only_says, bodies)):
            found.append((op.name, frame, Asked(op.inputs[0], 0)))
        for body in bodies:
            found += _asked(asking, body, body.graph.outputs)
    return found


def _asked_of_loop(asking: _Asking, frame: Frame, loop: Any) -> list[tuple[str, Frame, Asked]]:
    body = asking.walk.body_of(loop, frame)
    if body is None:
        return []
    if asking.loops.is_over_rows(loop, frame):
        kept = kept_from_row_to_row(body) if asking.keeps else []
        found = [Asked(each, place) for place, each in enumerate(kept)]
        return [(loop.name, body, each) for each in found if _is_known(each)]
    condition, goes_on = asking.walk.decision_of(loop, frame)
    return [(loop.name, condition, Asked(goes_on, 0)), *_asked(asking, body, body.graph.outputs)]


def _is_known(asked: Asked) -> bool:
    return asked.shape is not None and None not in asked.shape


def _used(walk: ReplicaWalk, frame: Frame, operations: Sequence[Any], results: Sequence[Any]) -> set[str]:
    """Names of those of which results are made, or what has an effect; what is only said or asserted has none."""
    left = [each.op for each in results]
    for op in operations:
        bodies = walk.bodies(op, frame)
        only_says = op.type in _SAYS or (bodies and all(map(_only_says, bodies)))
        if op.op_def.is_stateful and not only_reads(op) and not only_says:
            left.append(op)
    used = set()
    while left:
        op = left.pop()
        if op.name not in used:
            used.add(op.name)
            left += [] if compares_with_itself(op) else [each.op for each in op.inputs]
            left += [each for each in op.control_inputs if each.type not in _SAYS]
    return used


def goes_by(op: Any) -> list[Asked]:
    """By which numbers an operation decides what becomes of something."""
    if op.type in _BENT or op.type in OF_PYTHON:
        return floating_inputs(op)
    if op.type in _CHOICES or (op.type == "Cast" and _makes_steps(op)):
        return [Asked(op.inputs[0], 0)]
    return []


def _makes_steps(cast: Any) -> bool:
    """Of what is true or false numbers, or of numbers of floating point whole ones."""
    held, made = cast.inputs[0].dtype, cast.outputs[0].dtype
    return bool(held.is_bool or (held.is_floating and made.is_integer))


def floating_inputs(op: Any) -> list[Asked]:
    """All of them."""
    return [Asked(each, place) for place, each in enumerate(op.inputs) if each.dtype.is_floating]


def _without_replica(name: str) -> str:
    return re.sub(r"(^|/)replica_\d+/", r"\1", name)


def _replica(name: str) -> int:
    found = re.search(r"(^|/)replica_(\d+)/", name)
    return int(found[2]) if found else 0


def _only_says(frame: Frame) -> bool:
    return all(op.type in _SAYS for op in frame.graph.get_operations())

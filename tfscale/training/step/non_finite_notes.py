"""What is said of a step whose loss was not finite?"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

IN_LOSS, IN_GRADIENTS, IN_WEIGHTS = 1, 2, 3
_SHOWN = 3
_WHAT = {
    IN_LOSS: "the loss is not finite",
    IN_GRADIENTS: "gradients are not finite, though the loss is,",
    IN_WEIGHTS: "the update makes weights that are not finite, though the loss is,",
}


class Note(NamedTuple):
    """What one replica has noted since it was asked last. All numbers are whole ones."""

    steps: float
    """Steps of the epoch so far."""
    num_found: float
    """Those in which something was not finite."""
    step: float
    """The first of them, from 1."""
    kind: float
    """What was not finite in it."""
    first_row: float
    """Row of the global batch at which the replica's rows begin, in that step."""
    num_rows: float
    """How many it had; 0 where it computed on a stand-in."""
    bad_row: float
    """The first of them that holds a number that is not finite, from 1; 0 where none does."""


@dataclasses.dataclass(frozen=True)
class ReplicaRows:
    """A replica, and which rows of a global batch it had.

    Args:
        replica: Its number among all replicas.
        worker: Rank of its worker.
        first_row: Its first row, counted from 0.
        num_rows: How many; 0 for a replica that computes on a stand-in.
        bad_row: The first of them that holds a number that is not finite; None where the data are finite.
    """

    replica: int
    worker: int
    first_row: int
    num_rows: int
    bad_row: int | None = None

    def __str__(self) -> str:
        name = f"replica {self.replica} (worker {self.worker})"
        if self.num_rows == 0:
            return f"{name}, which has no rows of its own and computes on a stand-in"
        last = self.first_row + self.num_rows - 1
        rows = f"row {last}" if self.num_rows == 1 else f"rows {self.first_row} to {last}"
        bad = "" if self.bad_row is None else f", where the data of row {self.bad_row} are not finite"
        return f"{name} with {rows} of the global batch{bad}"


@dataclasses.dataclass(frozen=True)
class NonFiniteStep:
    """The first step of a call in which something was not finite.

    Args:
        epoch: From 1.
        step: In that epoch, from 1.
        where: The replicas on which it arose.
        kind: What was not finite: the worst of all replicas.
        is_everywhere: Whether it arose on every replica of several at once.
    """

    epoch: int
    step: int
    where: tuple[ReplicaRows, ...]
    kind: int = IN_LOSS
    is_everywhere: bool = False

    def __str__(self) -> str:
        return f"in step {self.step} of epoch {self.epoch} {_WHAT[self.kind]} {self._places()}{self._cause()}"

    def _places(self) -> str:
        shown = "; ".join(map(str, self.where[:_SHOWN]))
        more = f"; and {len(self.where) - _SHOWN} more replicas" if len(self.where) > _SHOWN else ""
        return f"on {shown}{more} (rows are counted from 0)"

    def _cause(self) -> str:
        if any(each.bad_row is not None for each in self.where):
            return ""
        if self.kind != IN_LOSS:
            return ". Look for a square root, a norm or a division at zero"
        if self.is_everywhere:
            return (
                ". All at once: an earlier update may have made weights that are not finite, with gradients of a "
                'finite loss; "stop" and "skip" look at these too'
            )
        return ""


def first_of(notes: Sequence[Note], *, epoch: int, replicas_per_worker: int) -> NonFiniteStep | None:
    """The first step that any replica has noted, and where it arose; None where all was finite.

    What is not finite on one replica may be so on all, within the step: synchronised BatchNormalization carries it to
    their losses, or only to their gradients. Those are named whose loss it is, and of these those whose data it is.

    Args:
        notes: By replica.
        epoch: From 1.
        replicas_per_worker: As many on each.

    Example:
        >>> from tfscale.training.step.non_finite_notes import Note, first_of
        >>> fine = Note(9, 0, 0, 0, 0, 0, 0)
        >>> notes = [fine, Note(9, 2, 7, 1, 4, 4, 2), Note(9, 1, 8, 1, 8, 4, 0)]
        >>> first = first_of(notes, epoch=1, replicas_per_worker=1)
        >>> print(first.step, first.where[0])
        7 replica 1 (worker 1) with rows 4 to 7 of the global batch, where the data of row 5 are not finite
        >>> first_of([fine], epoch=1, replicas_per_worker=1) is None
        True
    """
    found = {replica: note for replica, note in enumerate(notes) if note.num_found}
    if not found:
        return None
    step = min(note.step for note in found.values())
    kind = min(int(note.kind) for note in found.values() if note.step == step)
    first = {replica: note for replica, note in found.items() if (note.step, note.kind) == (step, kind)}
    bad = {replica: note for replica, note in first.items() if note.bad_row}
    where = [_rows_of(replica, note, replicas_per_worker) for replica, note in (bad or first).items()]
    return NonFiniteStep(epoch, int(step), tuple(where), kind, 1 < len(notes) == len(where))


def _rows_of(replica: int, note: Note, replicas_per_worker: int) -> ReplicaRows:
    bad_row = int(note.first_row + note.bad_row) - 1 if note.bad_row else None
    return ReplicaRows(replica, replica // replicas_per_worker, int(note.first_row), int(note.num_rows), bad_row)

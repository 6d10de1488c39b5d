"""What `verify` found, as a table."""

import math
import textwrap
from dataclasses import asdict, dataclass
from typing import Any

EQUAL = "equal"
ROUNDING = "rounding"
DIFFERS = "differs"
CRASHED = "crashed"

_WIDTH = 100


@dataclass(frozen=True)
class ParityRow:
    """One quantity of one run, compared with the reference.

    Args:
        run: The run, for example "tfscale, 2 replicas".
        quantity: "weights", "optimizer state", "epoch metrics", "evaluate" or "predict"; "run" when
            it crashed.
        difference: The largest relative difference; infinite when there is no number.
        where: The array with the largest difference; the error when the run crashed.
        verdict: "equal", "rounding" (above the tolerance, and in float64 the same run is the reference), "differs" or
            "crashed".
        promised: Whether tfscale promises equality; not so for plain Keras beside.
    """

    run: str
    quantity: str
    difference: float
    where: str
    verdict: str
    promised: bool = True


@dataclass(frozen=True)
class ParityReport:
    """The differences between runs on N replicas and the reference, plain Keras on one device.

    `str()` gives the table with its causes and notes.

    Args:
        title: What was run.
        tolerance: The relative difference up to which a row is equal.
        rows: One per run and quantity.
        causes: For each kind of difference, the runs and the likeliest cause.
        notes: What the user should know of how the runs were made comparable.

    Example:
        >>> row = ParityRow("tfscale, 2 replicas", "weights", 2e-7, "dense/kernel", "equal")
        >>> report = ParityReport("train.py:build, 8 steps", 1e-5, (row,))
        >>> report.equal
        True
        >>> print(report)
        train.py:build, 8 steps
        run                  quantity  difference  verdict  largest in
        tfscale, 2 replicas  weights      2.0e-07  equal    dense/kernel
        Equal: no relative difference above 1e-05 from plain Keras on one device.
    """

    title: str
    tolerance: float
    rows: tuple[ParityRow, ...]
    causes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether every run through tfscale computes what the reference does: none differs by more than rounding."""
        return all(row.verdict in (EQUAL, ROUNDING) for row in self.rows if row.promised)

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as plain values for JSON; a difference without a number is None."""
        report = {"equal": self.equal, **asdict(self)}
        for row in report["rows"]:
            row["difference"] = row["difference"] if math.isfinite(row["difference"]) else None
        return report

    def below(self) -> list[str]:
        """What stands below the table: the verdict, causes and notes."""
        reference = f"above {self.tolerance:g} from plain Keras on one device."
        if not self.equal:
            lines = [f"Differs: a run through tfscale has a relative difference {reference}"]
        elif any(row.verdict == ROUNDING for row in self.rows):
            lines = [f"Equal in float64: each relative difference {reference[:-1]} is rounding."]
        else:
            lines = [f"Equal: no relative difference {reference}"]
        for text in (*self.causes, *(f"Note: {note}" for note in self.notes)):
            lines += textwrap.wrap(text, _WIDTH, subsequent_indent="  ", break_long_words=False)
        return lines

    def __str__(self) -> str:
        return "\n".join([*textwrap.wrap(self.title, _WIDTH), *_table(self.rows), *self.below()])


HEADER = ("run", "quantity", "difference", "verdict", "largest in")


def cells_of(rows: tuple[ParityRow, ...]) -> list[tuple[str, str, str, str, str]]:
    """The texts of the table; a run is named once."""
    cells = []
    previous = None
    for row in rows:
        run = row.run if row.run != previous else ""
        previous = row.run
        size = f"{row.difference:.1e}" if math.isfinite(row.difference) else "-"
        cells.append((run, row.quantity, size, row.verdict, row.where))
    return cells


def _table(rows: tuple[ParityRow, ...]) -> list[str]:
    cells = [HEADER, *cells_of(rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    # Numbers to the right, text to the left; the last column is free.
    return [
        f"{run:<{widths[0]}}  {quantity:<{widths[1]}}  {size:>{widths[2]}}  {verdict:<{widths[3]}}  {where}".rstrip()
        for run, quantity, size, verdict, where in cells
    ]

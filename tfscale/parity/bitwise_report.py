"""What `verify_bitwise` found, as a table."""

import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tfscale.parity.bits import BitDifference
from tfscale.parity.report import DIFFERS, EQUAL

_WIDTH = 100
BITWISE_HEADER = ("run", "quantity", "arrays", "verdict", "first that differs")


@dataclass(frozen=True)
class BitwiseRow:
    """One quantity of one run, compared with that on one device.

    Args:
        run: The run, for example "3 devices".
        quantity: "data", "starting weights", "epoch logs", "weights", "optimizer state", "evaluate" or "predict".
        num_arrays: Arrays that were compared, of all epochs and workers.
        num_differing: Those whose bytes differ.
        first: The first of them; None where there is none.
    """

    run: str
    quantity: str
    num_arrays: int
    num_differing: int
    first: BitDifference | None = None

    @property
    def verdict(self) -> str:
        """One of "equal" and "differs"."""
        return DIFFERS if self.num_differing else EQUAL


@dataclass(frozen=True)
class BitwiseReport:
    """Whether the bytes of runs of the same logical replicas are those of the run on one device.

    `str()` gives the table.

    Args:
        title: What was run.
        rows: One per run and quantity.
        first: By run, the first array that differs.
        causes: The likeliest causes of what differs.
        notes: What the user should know besides.
        depends_on: What the bits depend on besides batch, logical replicas and seed, as it is here.

    Example:
        >>> report = BitwiseReport("train.py:build, 8 steps", (BitwiseRow("2 devices", "weights", 6, 0),))
        >>> report.equal
        True
        >>> print(report)
        train.py:build, 8 steps
        run        quantity  arrays  verdict  first that differs
        2 devices  weights        6  equal
        Equal to the bit: 2 devices, as 1 device.
    """

    title: str
    rows: tuple[BitwiseRow, ...]
    first: Mapping[str, BitDifference] = field(default_factory=dict)
    causes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    depends_on: Mapping[str, str] = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        """Whether every run has the bytes of that on one device."""
        return not self.first

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as plain values for JSON."""
        report = {"equal": self.equal, **asdict(self)}
        for row, values in zip(self.rows, report["rows"], strict=True):
            values["verdict"] = row.verdict
        return report

    def cells(self) -> list[tuple[str, str, str, str, str]]:
        """The texts of the table; a run is named once."""
        cells = []
        previous = None
        for row in self.rows:
            run = row.run if row.run != previous else ""
            previous = row.run
            count = f"{row.num_differing} of {row.num_arrays}" if row.num_differing else str(row.num_arrays)
            cells.append((run, row.quantity, count, row.verdict, row.first.name if row.first else ""))
        return cells

    def below(self) -> list[str]:
        """What stands below the table: the verdict, causes, notes and what bits depend on."""
        runs = list(dict.fromkeys(row.run for row in self.rows))
        equal = [run for run in runs if run not in self.first]
        texts = [f"Equal to the bit: {', '.join(equal)}, as 1 device."] if equal else []
        texts += [f"Differs from 1 device: {run}, first in {found}." for run, found in self.first.items()]
        texts += [*self.causes, *(f"Note: {note}" for note in self.notes)]
        if self.depends_on:
            facts = ", ".join(f"{name} {value}" for name, value in self.depends_on.items())
            texts.append(f"Bits depend besides on what is here: {facts}.")
        lines = []
        for text in texts:
            lines += textwrap.wrap(text, _WIDTH, subsequent_indent="  ", break_long_words=False)
        return lines

    def __str__(self) -> str:
        lines = [BITWISE_HEADER, *self.cells()]
        widths = [max(len(line[column]) for line in lines) for column in range(4)]
        # Numbers to the right, text to the left; the last column is free.
        form = "{:<{}}  {:<{}}  {:>{}}  {:<{}}  {}"
        table = [
            form.format(run, widths[0], quantity, widths[1], count, widths[2], verdict, widths[3], name).rstrip()
            for run, quantity, count, verdict, name in lines
        ]
        return "\n".join([*textwrap.wrap(self.title, _WIDTH), *table, *self.below()])

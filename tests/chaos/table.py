"""What was tried and what was survived, as a table: kinds of faults by kinds of data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.chaos.schedule import DATA, FAULTS

COMMAND = "python -m tests.chaos --seed {}"


@dataclass(frozen=True)
class Row:
    """What came of one schedule.

    Args:
        seed: Of the schedule.
        data: What was trained on.
        faults: The kinds of what befell it.
        lost: Why it is lost; empty where it is not.
        starts: How often the job was started.
        begun_anew: How often its directory was deleted, as an error said.
        has_own_network: Whether its network could be taken down.
        seconds: What it took.
        log: What its workers wrote, where it is lost.
    """

    seed: int
    data: str
    faults: list[str]
    lost: str = ""
    starts: int = 1
    begun_anew: int = 0
    has_own_network: bool = True
    seconds: float = 0.0
    log: list[str] = field(default_factory=list)


def summary(rows: Sequence[Row]) -> str:
    """Counts, in a sentence."""
    faults, lost = sum(len(row.faults) for row in rows), [row for row in rows if row.lost]
    survived = sum(len(row.faults) for row in rows if not row.lost)
    anew = sum(row.begun_anew for row in rows)
    text = f"{len(rows)} jobs, {sum(row.starts for row in rows)} starts: **{faults} faults tried, {survived} survived"
    text += f", {len(lost)} jobs lost**."
    if anew:
        text += f" {anew} of the damages left no state, said so, and the run began anew."
    return text


def for_notes(rows: Sequence[Row], seeds: str) -> str:
    """The counts in Markdown: of each kind of fault on each kind of data, how often it was tried, and lost.

    Args:
        rows: What was run.
        seeds: Which schedules these were.
    """
    tried: Counter[tuple[str, str]] = Counter()
    lost: Counter[tuple[str, str]] = Counter()
    for row in rows:
        for fault in row.faults:
            tried[fault, row.data] += 1
            lost[fault, row.data] += bool(row.lost)
    lines = [f"{summary(rows)} {seeds}", "", f"| fault | {' | '.join(DATA)} | all |", "|---" * (len(DATA) + 2) + "|"]
    for fault in FAULTS:
        cells = [_cell(tried[fault, data], lost[fault, data]) for data in DATA]
        sums = [sum(counts[fault, data] for data in DATA) for counts in (tried, lost)]
        lines.append(f"| {fault} | {' | '.join(cells)} | {_cell(*sums)} |")
    lines += [f"\nLost: seed {row.seed}, {row.data} ({COMMAND.format(row.seed)})." for row in rows if row.lost]
    return "\n".join(lines)


def _cell(tried: int, lost: int) -> str:
    if not tried:
        return "-"
    return f"**{tried - lost} of {tried}**" if lost else str(tried)

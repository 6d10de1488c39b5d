"""What was measured, as text for people and as JSON lines for later."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.contenders import PER_REPLICA_BATCH
from benchmarks.heat import Row
from benchmarks.processes import Measurement
from tfscale.scaling.knob import format_table

RESULTS = Path(__file__).resolve().parent / "results" / "results.jsonl"

_HEADER = (
    *("", "model", "what", "against", "examples/s ratio", "must", "steps/s", "CPU", "memory"),
    "",
)


def ruled(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table of aligned columns, with a line below its head."""
    text = format_table(head, rows).splitlines()
    return "\n".join([text[0], "-" * max(map(len, text)), *text[1:]])


def render(rows: Sequence[Row], facts: Mapping[str, Any]) -> str:
    """The table, with what it takes to read it."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return "\n".join(
        [
            f"{facts['date']}, {facts['num_cpus']} CPU(s), {facts['system']}: {versions}.",
            f"Batch {PER_REPLICA_BATCH} per replica, {facts['optimizer']}; {facts['num_rounds']} "
            f"rounds of {facts['block_s']:g} s in turn.",
            "examples/s ratio: median [least .. greatest] of the ratios within a round.",
            "CPU: processor time per example; memory: peak resident size; ratios, less is better.",
            "",
            ruled(_HEADER, map(_cells, rows)),
        ]
    )


def _cells(row: Row) -> tuple[str, ...]:
    verdict = {None: "", True: "ok", False: "MISSED"}[row.passed]
    memory = f"{row.memory_ratio:.3f}" + (f" (<= {row.memory_at_most:g})" if row.memory_at_most else "")
    return (
        row.group,
        row.model,
        f"{row.title}: {row.contender}" if row.contender not in row.title else row.title,
        row.against,
        f"{row.ratio:.3f} [{row.ratio_min:.3f} .. {row.ratio_max:.3f}]",
        f">= {row.at_least:.2f}" if row.at_least is not None else "",
        f"{row.steps_per_s:.1f} : {row.against_steps_per_s:.1f}",
        f"{row.cpu_ratio:.2f}",
        memory,
        verdict,
    )


def machine_facts() -> dict[str, Any]:
    """What a reader must know of the machine."""
    return {
        "num_cpus": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
    }


def append(
    rows: Sequence[Row],
    measured: Sequence[tuple[str, Mapping[str, Sequence[Measurement]]]],
    facts: Mapping[str, Any],
    path: Path,
) -> None:
    """Adds one JSON line: facts, rows, and every block behind them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    blocks = [
        {"heat": heat, "contender": label, "blocks": [dataclasses.asdict(each) for each in group]}
        for heat, by_label in measured
        for label, group in by_label.items()
    ]
    record = {
        **facts,
        "rows": [{**dataclasses.asdict(row), "passed": row.passed} for row in rows],
        "measured": blocks,
    }
    with path.open("a") as stream:
        stream.write(json.dumps(record) + "\n")

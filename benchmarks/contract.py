"""The N = 1 contract as a table: plain Keras under tf.distribute, and tfscale, against one device.

    python -m benchmarks.contract                 prints the table
    python -m benchmarks.contract --write docs/contract.md   and puts it between the file's markers

The rows and their cases are those of the tests (`tests/training/contract_rows.py`). Plain Keras gets
a process per row, because a failed collective spoils a process, and a deadline.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from tests.processes import CaseError, run_case, run_workers
from tests.programs.table import between_markers
from tests.training import contract_run
from tests.training.contract_rows import ROWS, Row, rows_in_float64

TABLES = {"contract": ROWS, "contract in float64": rows_in_float64()}
"""By what the markers of each are called."""
NUM_REPLICAS, NUM_WORKERS = 4, 2
_TIMEOUT_S = 180.0
_TEST = "tests/training/test_workers.py::test_workers_equal_one_replica"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 1 when tfscale missed a row."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.contract", description=__doc__)
    parser.add_argument("--write", type=Path, help="a file with markers to put the table between")
    parser.add_argument("--only", help="rows whose title contains this")
    options = parser.parse_args(arguments)
    is_whole = True
    for name, known in TABLES.items():
        rows = [row for row in known if not options.only or options.only in row.title]
        with tempfile.TemporaryDirectory() as directory:
            cells = measure(rows, Path(directory))
        table = render(rows, cells)
        print(table)
        if options.write:
            options.write.write_text(between_markers(options.write.read_text(), name, table))
        is_whole &= all(ours.startswith("equal") for _, ours in cells)
    return int(not is_whole)


def measure(rows: Sequence[Row], directory: Path) -> list[tuple[str, str]]:
    """What plain Keras and tfscale give for each row, in words."""
    for name in ("references", "replicas", "workers"):
        (directory / name).mkdir()
    references = directory / "references"
    with ThreadPoolExecutor(1) as pool:
        ours = pool.submit(_of_tfscale, rows, directory, references)
        theirs = [_of_keras(row, references) for row in rows]
        return list(zip(theirs, ours.result(), strict=True))


def _of_tfscale(rows: Sequence[Row], directory: Path, references: Path) -> list[str]:
    names = [row.cases[0] for row in rows if not _needs_workers(row)]
    results = contract_run.run_on_replicas(list(dict.fromkeys(names)), NUM_REPLICAS, directory / "replicas", references)
    words = []
    for row in rows:
        found = [results.get(row.cases[0])]
        if _needs_workers(row):
            found = [
                by_name[row.cases[0]]
                for by_name in contract_run.run_on_workers(
                    row.cases[:1], NUM_WORKERS, directory / "workers", references
                )
            ]
        words.append(_worst([_in_words(row.cases[0], result) for result in found]))
    return words


def _of_keras(row: Row, references: Path) -> str:
    print(row.title, file=sys.stderr, flush=True)
    name = row.cases[0]
    target, args = "benchmarks.contract:run_plain", (name, NUM_REPLICAS, str(references))
    try:
        if not _needs_workers(row):
            return _in_words(name, run_case(target, args=args, timeout_s=_TIMEOUT_S))
        run_case("tests.training.contract_run:refer", args=([name], str(references)))
        results = run_workers(target, NUM_WORKERS, args=(name, 1, str(references)), timeout_s=_TIMEOUT_S)
        return _worst([_in_words(name, result) for result in results])
    except CaseError as error:
        return "does not finish" if "not finished" in str(error) else "crash"


def run_plain(name: str, num_replicas: int, references: str) -> contract_run.Result:
    """One case with plain Keras under tf.distribute, in a process of its own."""
    import tensorflow as tf

    import tfscale
    from tests.training.contract import PlainKeras, differences

    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
        strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(num_replicas)])
    else:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()

    class UnderStrategy(PlainKeras):
        """The script as the guide to tf.distribute tells a user to write it."""

        num_replicas = strategy.num_replicas_in_sync

        def scope(self) -> Any:
            return strategy.scope()

    case = contract_run.load_cases()[name]
    expected = contract_run.reference_of(name, case, Path(references))
    try:
        ours = contract_run.run_seeded(case.run, UnderStrategy())
    except Exception as error:
        return contract_run.Result({}, type(error).__name__)
    # Not every difference without bounds is one of shape.
    nan = any(array.dtype.kind == "f" and np.any(np.isnan(array)) for arrays in ours.values() for array in arrays)
    return contract_run.Result({"NaN": np.inf} if nan else differences(ours, expected))


def _in_words(name: str, result: Any) -> str:
    if result.error:
        return f"crash: `{result.error.strip().splitlines()[-1].split(':')[0].split('.')[-1]}`"
    case = contract_run.load_cases()[name]
    beyond = contract_run.beyond_tolerance(case, result)
    if not beyond:
        return f"equal ({max(result.differences.values()):.0e})"
    # What comes first is what the others follow from.
    quantity, difference = next(iter(beyond.items()))
    if difference > 1e5:
        return f"**{quantity}**"
    return f"**{quantity} differ by {difference:.2g}**"


def _worst(words: Sequence[str]) -> str:
    return next((each for each in words if not each.startswith("equal")), words[0])


def _needs_workers(row: Row) -> bool:
    return row.test == _TEST


def render(rows: Sequence[Row], cells: Sequence[tuple[str, str]]) -> str:
    """The table in Markdown."""
    keras = f"plain Keras {_version('keras')}"
    lines = [f"| row | {keras} | tfscale | test |", "|---|---|---|---|"]
    for row, (theirs, ours) in zip(rows, cells, strict=True):
        lines.append(f"| {row.title} | {theirs} | {ours} | `{_test_of(row)}` |")
    return "\n".join(lines)


def _test_of(row: Row) -> str:
    path, _, function = row.test.partition("::")
    parameters = f"{row.cases[0]}-{NUM_REPLICAS}" if path.endswith("_counts.py") else row.cases[0]
    return f"{Path(path).name}::{function}[{parameters}]"


def _version(package: str) -> str:
    return importlib.metadata.version(package)


if __name__ == "__main__":
    sys.exit(main())

"""Runs the cases of the contract: in one child process per number of replicas, or in workers.

Each result is a file of its own, written as soon as it is there, so that a process that dies takes
only the case at hand with it. So is what plain Keras gives for a case, which all processes share.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.processes import CaseError, run_case, run_workers

TABLES = (
    "batches",
    "updates",
    "optimizers",
    "losses",
    "metrics",
    "precision",
    "models",
    "inputs",
    "calls",
    "micro",
    "compressed",
    "replicas",
    "anywhere",
    "loops",
    "functions",
    "numbers",
    "float64",
    "layers",
    "measures",
)
HALF = 9
"""So many tables are run by test_contract.py, the others by test_contract_programs.py."""
# For the whole of a process; a case takes about three seconds when nothing else runs.
_START_S, _CASE_S = 120.0, 25.0
# TensorFlow keeps the graphs of replicas for good, and the process grows.
_CASES_OF_A_PROCESS = 66


class Result(NamedTuple):
    """What one case gave: relative differences by quantity, or the text of an error."""

    differences: dict[str, float]
    error: str = ""


def load_cases(tables: Sequence[str] = TABLES) -> dict[str, Any]:
    """All cases by name, in order."""
    cases: dict[str, Any] = {}
    for table in tables:
        found = importlib.import_module(f"tests.training.contract_cases_{table}").CASES
        assert not cases.keys() & found.keys(), "two cases have the same name"
        cases |= found
    return cases


def beyond_tolerance(case: Any, result: Result) -> dict[str, float]:
    """The differences that are larger than the case allows."""
    from tests.training.contract import OPTIMIZER_TOLERANCE

    allowed = {"optimizer": max(OPTIMIZER_TOLERANCE, case.tolerance), **case.tolerances}
    return {
        quantity: difference
        for quantity, difference in result.differences.items()
        if not difference <= allowed.get(quantity, case.tolerance)
    }


def check(case: Any, result: Result) -> None:
    """Fails when a case raised, compared nothing, or differs."""
    assert not result.error, result.error
    assert result.differences
    assert beyond_tolerance(case, result) == {}


def check_on_workers(results: Sequence[dict[str, Result]], name: str) -> None:
    """`check` of a case on every worker."""
    case = load_cases()[name]
    for by_name in results:
        check(case, by_name[name])


def run_on_replicas(
    names: Sequence[str], num_replicas: int, directory: Path, references: Path, *, ahead: bool = False
) -> dict[str, Result]:
    """Runs cases on `num_replicas` logical CPUs of one process; `ahead`: with their rows copied ahead, as on GPUs."""

    def start(left: Sequence[str], timeout_s: float) -> None:
        args = (left, num_replicas, str(directory), str(references), None, ahead)
        run_case("tests.training.contract_run:child", args=args, timeout_s=timeout_s)

    return run_all(names, start, directory)


def run_on_workers(
    names: Sequence[str],
    num_workers: int,
    directory: Path,
    references: Path,
    *,
    bytes_per_pack: int | None = None,
) -> list[dict[str, Result]]:
    """Runs cases in worker processes of one replica each; returns their results by rank."""
    # A worker must make its strategy before anything else, so plain Keras runs before them.
    run_case(
        "tests.training.contract_run:refer",
        args=(names, str(references)),
        timeout_s=_START_S + _CASE_S * len(names),
    )
    directories = [directory / str(rank) for rank in range(num_workers)]
    for each in directories:
        each.mkdir()

    def start(left: Sequence[str], timeout_s: float) -> None:
        args = (left, 1, str(directory), str(references), bytes_per_pack)
        target = "tests.training.contract_run:child"
        run_workers(target, num_workers, args=args, timeout_s=timeout_s)

    return [run_all(names, start, each) for each in directories]


def run_all(names: Sequence[str], start: Callable[[Sequence[str], float], None], directory: Path) -> dict[str, Result]:
    """Results of all cases. One that ends its process costs the others a new one."""
    left = [name for name in names if not _path(directory, name).exists()]
    while left:
        now, left = left[:_CASES_OF_A_PROCESS], left[_CASES_OF_A_PROCESS:]
        try:
            start(now, _START_S + _CASE_S * len(now))
            tail = "the process ended without a result"
        except CaseError as error:
            tail = str(error)
        done = [name for name in now if _path(directory, name).exists()]
        undone = [name for name in now if name not in done]
        if undone and not (done and _read(directory, done[-1]).error):
            _write(directory, undone.pop(0), Result({}, tail))
        left = undone + left
    return {name: _read(directory, name) for name in names}


def child(
    names: Sequence[str],
    num_replicas: int,
    directory: str,
    references: str,
    bytes_per_pack: int | None = None,
    ahead: bool = False,
) -> None:
    """Runs cases one after the other in this process, up to the first error.

    An error may have spoiled the collectives of this process, and those of other workers.
    """
    import tfscale
    from tests.gpu.devices import take_rows_as_on_gpus

    if ahead:
        take_rows_as_on_gpus()
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    strategy = tfscale.make_strategy(bytes_per_pack=bytes_per_pack)
    cluster = tfscale.resolve_cluster()
    results = Path(directory, str(cluster.rank) if cluster.num_workers > 1 else "")
    run_in_order(names, load_cases(), strategy, results, Path(references))


def run_in_order(names: Sequence[str], cases: Any, strategy: Any, results: Path, references: Path) -> None:
    """Runs cases in this process, up to the first error, with which it ends the process."""
    for name in names:
        start_s = time.monotonic()
        result = run_one(name, cases[name], strategy, references)
        print(f"{time.monotonic() - start_s:5.1f} s  {name}: {result.differences}", flush=True)
        _write(results, name, result)
        if result.error:
            sys.exit(result.error)


def refer(names: Sequence[str], references: str) -> None:
    """Runs cases with plain Keras."""
    cases = load_cases()
    for name in names:
        reference_of(name, cases[name], Path(references))


def run_one(name: str, case: Any, strategy: Any, references: Path) -> Result:
    """Runs one case with and without tfscale, in this process."""
    import tfscale
    from tests.training.contract import differences

    try:
        expected = reference_of(name, case, references)
        arguments = {"global_batch": case.global_batch, "batch_norm": case.batch_norm, **case.options}
        dp = tfscale.DataParallel(devices=strategy, **arguments)
        with _expected(case):
            return Result(differences(run_seeded(case.run, dp), expected))
    except Exception:
        return Result({}, traceback.format_exc())


def reference_of(name: str, case: Any, references: Path) -> Any:
    """What a case has to give; made by the first process that asks."""
    from tests.training.contract import PlainKeras

    path = _path(references, name)
    if not path.exists():
        with _expected(case):
            outcome = run_seeded(case.reference or case.run, PlainKeras())
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_bytes(pickle.dumps(outcome))
        partial.rename(path)
    return pickle.loads(path.read_bytes())


def run_seeded(script: Any, dp: Any) -> Any:
    """Runs a script as if it were the first in its process."""
    import keras

    # What is left of the cases before stays for good: Python's garbage collector need not look through it again and
    # again. Without this a case takes twice as long after sixty others.
    gc.collect()
    gc.freeze()
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    return script(dp)


@contextlib.contextmanager
def _expected(case: Any) -> Iterator[None]:
    """Passes over the warning that a case says it gives."""
    with warnings.catch_warnings():
        if case.warns:
            warnings.filterwarnings("ignore", case.warns, UserWarning)
        yield


def _path(directory: Path, name: str) -> Path:
    return directory / f"{name}.case"


def _read(directory: Path, name: str) -> Result:
    return pickle.loads(_path(directory, name).read_bytes())


def _write(directory: Path, name: str, result: Result) -> None:
    _path(directory, name).write_bytes(pickle.dumps(result))

"""What do the results of all runs say together?"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfscale.parity.cause import Finding, cause_under_keras, likeliest_cause
from tfscale.parity.comparison import (
    Differences,
    arrays_without_influence,
    compare_outcomes,
    largest,
)
from tfscale.parity.experiment import RunResult
from tfscale.parity.outcome import Outcome
from tfscale.parity.report import CRASHED, DIFFERS, EQUAL, ROUNDING, ParityReport, ParityRow
from tfscale.parity.request import Script
from tfscale.parity.run_spec import TFSCALE, RunSpec

# A bias differs in itself and in the optimizer's state for it: few names say enough.
_SHOWN_NAMES = 4


@dataclass(frozen=True)
class InFloat64:
    """How a run does in float64.

    Args:
        difference: The largest from the reference in float64, over all arrays; None where that is not known.
        is_rounding: Whether that is so small that what differs in the script's own type is rounding.
    """

    difference: float | None = None
    is_rounding: bool = False


_NOT_TRIED = InFloat64()


@dataclass(frozen=True)
class _Judged:
    """A run that ended, its differences, and which of them do not count."""

    result: RunResult
    differences: Differences
    excused: Mapping[str, Sequence[str]]

    def counted(self) -> dict[str, tuple[float, str]]:
        """Size and name of the largest difference of each quantity, among the arrays that count."""
        return {
            quantity: largest(
                {name: size for name, size in sizes.items() if name not in self.excused.get(quantity, ())} or {"": 0.0}
            )
            for quantity, sizes in self.differences.items()
        }


def any_promise_broken(reference: Outcome, results: Sequence[RunResult], tolerance: float) -> bool:
    """Whether an array of a run through tfscale is above the tolerance."""
    return any(
        size > tolerance
        for result in results
        if result.run.kind == TFSCALE
        for sizes in compare_outcomes(reference, result.workers).values()
        for size in sizes.values()
    )


def judge(
    script: Script,
    reference: Outcome,
    results: Sequence[RunResult],
    control: RunResult | None,
    tolerance: float,
    in_float64: Mapping[RunSpec, InFloat64] | None = None,
) -> ParityReport:
    """Makes the report.

    Args:
        script: What was run.
        reference: The outcome of the reference.
        results: The other runs, in the order of the table.
        control: The run from weights one rounding away; None when there was no need of it.
        tolerance: The relative difference up to which a row is equal.
        in_float64: How runs that differ in the script's own type do in float64, where they could be tried there.
    """
    by_rounding = {} if control is None else compare_outcomes(reference, control.workers)
    rows: list[ParityRow] = []
    findings: dict[str, list[str]] = {}
    in_float64 = in_float64 or {}
    excused: dict[str, None] = {}
    for result in results:
        if result.failure is not None:
            rows.append(_crashed(result))
            continue
        judged = _judge_run(result, reference, by_rounding, tolerance)
        finer = in_float64.get(result.run, _NOT_TRIED)
        rows += _rows(judged, tolerance, ROUNDING if finer.is_rounding else DIFFERS)
        excused |= dict.fromkeys(name for names in judged.excused.values() for name in names)
        cause = _cause(judged, reference, by_rounding, tolerance, finer)
        if cause is not None:
            findings.setdefault(cause, []).append(str(result.run))
    return ParityReport(
        title=_title(script, reference),
        tolerance=tolerance,
        rows=tuple(rows),
        causes=tuple(f"Likeliest cause ({'; '.join(runs)}): {cause}" for cause, runs in findings.items()),
        notes=_notes(reference, list(excused)),
    )


def _judge_run(result: RunResult, reference: Outcome, by_rounding: Differences, tolerance: float) -> _Judged:
    differences = compare_outcomes(reference, result.workers)
    return _Judged(result, differences, arrays_without_influence(differences, by_rounding, tolerance))


def _crashed(result: RunResult) -> ParityRow:
    failure = "" if result.failure is None else result.failure.first_line
    promised = result.run.kind == TFSCALE
    return ParityRow(str(result.run), "run", math.inf, failure, CRASHED, promised)


def _rows(judged: _Judged, tolerance: float, otherwise: str) -> list[ParityRow]:
    run = judged.result.run
    return [
        ParityRow(
            str(run),
            quantity,
            size,
            name,
            EQUAL if size <= tolerance else otherwise,
            run.kind == TFSCALE,
        )
        for quantity, (size, name) in judged.counted().items()
    ]


def _cause(
    judged: _Judged, reference: Outcome, by_rounding: Differences, tolerance: float, in_float64: InFloat64
) -> str | None:
    finding = _finding(judged, reference, by_rounding, tolerance, in_float64)
    if not finding.differing:
        return None
    name = likeliest_cause if judged.result.run.kind == TFSCALE else cause_under_keras
    return name(finding)


def _finding(
    judged: _Judged, reference: Outcome, by_rounding: Differences, tolerance: float, in_float64: InFloat64 = _NOT_TRIED
) -> Finding:
    differing = {quantity: size for quantity, (size, _) in judged.counted().items() if size > tolerance}
    workers = judged.result.workers
    return Finding(
        num_replicas=judged.result.run.num_replicas,
        differing=differing,
        model=workers[0].model,
        data=reference.data,
        same_data=all(outcome.data.digest == reference.data.digest for outcome in workers),
        control={quantity: largest(sizes)[0] for quantity, sizes in by_rounding.items()},
        in_float64=in_float64.difference,
        is_rounding=in_float64.is_rounding,
    )


def undecided(
    reference: Outcome, results: Sequence[RunResult], control: RunResult, tolerance: float
) -> list[RunResult]:
    """Runs through tfscale that saw the reference's data, drew nothing, and differ: by rounding, or by a mistake.

    That plain Keras goes as far from weights one rounding away says that rounding may have done it, not that it did.
    """
    by_rounding = compare_outcomes(reference, control.workers)
    found = []
    for result in results:
        if result.failure is None and result.run.kind == TFSCALE:
            judged = _judge_run(result, reference, by_rounding, tolerance)
            finding = _finding(judged, reference, by_rounding, tolerance)
            if finding.differing and finding.same_data and not finding.model.random_on:
                found.append(result)
    return found


def _title(script: Script, reference: Outcome) -> str:
    data = reference.data
    return (
        f"{script.build} on {script.data}, {_count(script.epochs, 'epoch')} of "
        f"{_count(data.num_steps, 'step')}, global batch {data.global_batch}"
    )


def _notes(reference: Outcome, excused: list[str]) -> tuple[str, ...]:
    notes = [
        f"{quantity} is not compared: plain Keras on one device ends it in {error}"
        for quantity, error in reference.left_out.items()
    ]
    if excused:
        more = f" and {len(excused) - _SHOWN_NAMES} more" if len(excused) > _SHOWN_NAMES else ""
        notes.append(
            f"not counted, because nothing that the model computes depends on it: "
            f"{', '.join(excused[:_SHOWN_NAMES])}{more}. Its gradient is nothing but rounding, and "
            "plain Keras on one device, from weights one rounding away, moves it about as far. "
            "Most often this is a bias in front of BatchNormalization; use_bias=False removes it."
        )
    if reference.model.random_off:
        notes.append(
            f"switched off in every run: {', '.join(reference.model.random_off)}. Each replica "
            "draws random numbers of its own, by design, so they cannot equal one replica's."
        )
    if reference.model.random_on:
        notes.append(
            f"left on, because only Keras's own random layers can be switched off: "
            f"{', '.join(reference.model.random_on)}."
        )
    return tuple(notes)


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

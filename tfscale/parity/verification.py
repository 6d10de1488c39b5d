"""`verify`: does this script give the same result on N replicas as on one?"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfscale.errors import ParityError
from tfscale.parity.arguments import make_script
from tfscale.parity.comparison import choose_tolerance, compare_outcomes
from tfscale.parity.experiment import Experiment, RunResult, experiment_on, failed_run
from tfscale.parity.judgement import InFloat64, any_promise_broken, judge, undecided
from tfscale.parity.outcome import WEIGHTS, Outcome
from tfscale.parity.report import ParityReport
from tfscale.parity.request import Script
from tfscale.parity.run_spec import CONTROL, REFERENCE, TFSCALE, RunSpec, choose_runs

# By so much less two runs have to differ in float64 for that to be rounding.
_FINER = 1e-3


def verify(
    build: str | Callable[[], Any],
    data: str | Callable[[], Any],
    *,
    num_replicas: Sequence[int] = (2, 3),
    workers: int | None = None,
    global_batch: int | None = None,
    epochs: int = 1,
    against: str | None = None,
    seed: int = 0,
    tolerance: float | None = None,
    timeout_s: float = 600.0,
    on_start: Callable[[RunSpec], None] | None = None,
    on_report: Callable[[ParityReport], None] = print,
) -> ParityReport:
    """Compares a script on N replicas with itself on one device, and prints the table.

    The reference is the script as it is: plain Keras on one device, without tfscale. Every other
    run is in a process of its own on logical CPUs, starts from the reference's weights and sees the
    same examples in the same order. Per array, with a from the run and b from the reference, the
    difference is max|a - b| / max|b|; per quantity it is the largest over arrays. (For weights and
    optimizer state, an array's max|b| counts as at least a thousandth of the largest one's.) When
    something differs, one more run of plain Keras on one device, from weights one rounding away,
    shows how far rounding alone goes. Weights that differ no more than that, while all metrics and
    predictions are equal, have no influence: they are listed and not counted. What still differs is
    run again in float64, beside the reference: a mistake is as large there, and what rounding has
    made is gone. Where they agree there the verdict is "rounding", and the run counts as equal.

    What is changed to make runs comparable, in all of them alike: arrays are not shuffled; a
    `tf.data.Dataset` is read once and kept in memory, so it must fit, and repeats its first epoch;
    Keras's own random layers (dropout, noise, augmentation) are switched off, because each replica
    draws its own stream by design, and the report lists them. The partial sums of gradient
    accumulation, of which each replica holds its part, are not compared, nor is what plain Keras
    cannot do with the model (`predict` without a `call`), which a note says.

    Args:
        build: Returns the compiled model. A function at the top level of a module or script, or
            "module:name", or "file.py:name". It is called under the strategy's scope.
        data: Likewise; returns what `fit` takes: `(x, y)`, `(x, y, sample_weight)`, a batched
            `tf.data.Dataset`, a `PyDataset`, or a dict of the arguments of `fit`.
        num_replicas: Replica counts to compare.
        workers: Compare a run on this many worker processes too, with one replica each.
        global_batch: Examples per step over all replicas. By default that of the data: the batch
            of a data set, `batch_size` of a dict, else 32.
        epochs: Epochs to train.
        against: `"keras"` runs plain Keras under tf.distribute beside, to show what would have
            happened; its rows do not count for `equal`.
        seed: Seeds Python, NumPy and Keras before `data` and before `build`.
        tolerance: Relative difference up to which a row is equal. By default 1e-5, and more when
            the model computes in half precision.
        timeout_s: Seconds that one run may take; then it is ended, with all that it started.
        on_start: Called with each run when it starts; by default it is logged.
        on_report: Called with the report; by default it is printed.

    Returns:
        The report; `.equal` is the verdict.

    Raises:
        ParityError: When an argument is wrong, the script fails or diverges on one device, or a run
            through tfscale fails or takes too long.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import tfscale
        >>> script = '''
        ... import keras
        ... import numpy as np
        ...
        ... def build():
        ...     model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        ...     model.compile("adam", "mse")
        ...     return model
        ...
        ... def data():
        ...     return np.random.normal(size=(50, 4)), np.random.normal(size=50)
        ... '''
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     file = Path(directory, "train.py")
        ...     _ = file.write_text(script)
        ...     report = tfscale.verify(f"{file}:build", f"{file}:data", num_replicas=(2,))
        train.py:build on train.py:data, 1 epoch of 2 steps, global batch 32
        run                  quantity         difference  verdict  largest in
        tfscale, 2 replicas  weights             ...      equal    ...
        Equal: no relative difference above 1e-05 from plain Keras on one device.
        >>> report.equal
        True
    """
    runs = choose_runs(num_replicas, workers=workers, against=against)
    _check_tolerance(tolerance)
    script = make_script(build, data, epochs=epochs, seed=seed, global_batch=global_batch, timeout_s=timeout_s)
    with experiment_on(script, timeout_s=timeout_s, on_start=on_start) as experiment:
        report = _compare(experiment, runs, script, tolerance)
    on_report(report)
    return report


def _check_tolerance(tolerance: float | None) -> None:
    if tolerance is None:
        return
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not tolerance >= 0:
        raise ParityError(
            "`tolerance` must be a number of 0 or more, or None.\n"
            f"Received: tolerance={tolerance!r}. Leave it out for the default of the model's dtype."
        )


def _compare(experiment: Experiment, runs: Sequence[RunSpec], script: Script, tolerance: float | None) -> ParityReport:
    reference = experiment.run_reference()
    _check_finite(reference)
    _check_counts(runs, reference.data.global_batch)
    if tolerance is None:
        tolerance = choose_tolerance(reference.model.compute_dtypes)
    found = {}
    for result in experiment.run(runs):
        if result.failure is not None and result.run.kind == TFSCALE:
            raise failed_run(result)
        found[result.run] = result
    results = [found[run] for run in runs]
    control, in_float64 = None, {}
    if any_promise_broken(reference, results, tolerance):
        [control] = experiment.run([RunSpec(CONTROL)])
        if control.failure is not None:
            raise failed_run(control)
        in_float64 = _in_float64(experiment, reference, undecided(reference, results, control, tolerance))
    return judge(script, reference, results, control, tolerance, in_float64)


def _in_float64(experiment: Experiment, reference: Outcome, results: Sequence[RunResult]) -> dict[RunSpec, InFloat64]:
    """How these runs do in float64.

    A mistake is as large there; what rounding has made is smaller by as much as float64 is finer, if nothing has grown
    without bounds. A script that says its types itself may not run, or not in float64: then nothing is known.
    """
    runs = [result.run for result in results]
    again = [dataclasses.replace(run, in_float64=True) for run in (RunSpec(REFERENCE), *runs)]
    found = {result.run: result for result in experiment.run(again)} if runs else {}
    if any(result.failure is not None for result in found.values()):
        return {}
    tolerance = choose_tolerance(("float64",))
    differences: dict[RunSpec, InFloat64] = {}
    for result, other in zip(results, again[1:], strict=True):
        [finer] = found[again[0]].workers
        if any(each.model.compute_dtypes != ("float64",) for each in (finer, *found[other].workers)):
            continue
        coarse, fine = _largest(reference, result.workers), _largest(finer, found[other].workers)
        differences[result.run] = InFloat64(fine, fine <= min(tolerance, _FINER * coarse))
    worst = max((each.difference or 0.0 for each in differences.values() if each.is_rounding), default=0.0)
    return {run: InFloat64(worst, True) if each.is_rounding else each for run, each in differences.items()}


def _largest(reference: Outcome, workers: Sequence[Outcome]) -> float:
    sizes = compare_outcomes(reference, workers).values()
    return max((size for quantity in sizes for size in quantity.values()), default=math.inf)


def _check_finite(reference: Outcome) -> None:
    for name, array in reference.arrays[WEIGHTS].items():
        if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
            raise ParityError(
                "The script must train to finite weights on one device.\n"
                f"Received: NaN or infinity in {name!r}. Lower the learning rate, or look for the "
                "step that overflows: nothing can be compared with NaN."
            )


def _check_counts(runs: Sequence[RunSpec], global_batch: int) -> None:
    most = max(run.num_replicas for run in runs)
    if most > global_batch:
        raise ParityError(
            f"`num_replicas` and `workers` must be at most the global batch ({global_batch}).\n"
            f"Received: {most}. Compare fewer replicas, or let `data` give larger batches."
        )

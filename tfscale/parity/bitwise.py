"""`verify_bitwise`: is a script's run the same on any number of devices, to the bit?"""

from collections.abc import Callable, Sequence
from typing import Any

from tfscale.parity.arguments import make_script
from tfscale.parity.bits import DATA, START, BitDifference, count_arrays, find_bit_differences
from tfscale.parity.bitwise_report import BitwiseReport, BitwiseRow
from tfscale.parity.experiment import Experiment, RunResult, experiment_on, failed_run
from tfscale.parity.outcome import Outcome
from tfscale.parity.request import Script
from tfscale.parity.run_spec import RunSpec, choose_bitwise_runs

LOGICAL_REPLICAS = 4
"""Of the runs, unless one says how many."""

_OTHER_DATA = (
    "`data` gave the runs other examples, or the same in another order: seed every shuffle and generator in it "
    "(`verify` seeds Python, NumPy and Keras, not `np.random.default_rng()`), and leave out what depends on time or on "
    "threads."
)
_OTHER_WEIGHTS = (
    "`build` makes other weights in each process: draw them by Keras's initializers, or from a generator with a seed."
)
_NOT_REPEATABLE = (
    "It is not the devices: on one device a second run differs from the first, too, first in {first}. Something draws "
    "from what nobody seeds (`np.random.default_rng()`, `os.urandom`, a set's order) or reads the time."
)
_BY_DEVICES = (
    "On one device a second run is equal to the first, so that the devices are the reason: code that asks how many "
    "there are or which it is on, or that keeps something from one logical replica of a device to the next. If the "
    "model has no code of its own, this is a mistake in tfscale: please report it with this table."
)


def verify_bitwise(
    build: str | Callable[[], Any],
    data: str | Callable[[], Any],
    *,
    logical_replicas: int = LOGICAL_REPLICAS,
    num_replicas: Sequence[int] | None = None,
    workers: int | None = None,
    global_batch: int | None = None,
    epochs: int = 1,
    seed: int = 0,
    timeout_s: float = 600.0,
    on_start: Callable[[RunSpec], None] | None = None,
    on_report: Callable[[BitwiseReport], None] = print,
) -> BitwiseReport:
    """Compares the bits of a script's run on one device with those on others, and prints the table.

    Every run is one with `DataParallel(logical_replicas=L, seed=s, deterministic=True, batch_norm="local")`, in a
    process of its own on logical CPUs. Random layers stay on. Compared are the bytes of the data, of the starting
    weights, of each epoch's logs, of weights and all variables of the optimizer after each epoch and at the end, of an
    evaluation and of predictions. Where they differ, the run on one device is made once more, which tells what nobody
    seeds from what depends on the devices.

    Whether the run is that of one replica is another question: see `verify`.

    Args:
        build: As in `verify`.
        data: As in `verify`; it is not shuffled by `fit`, and read into memory.
        logical_replicas: L; it must divide the global batch.
        num_replicas: Numbers of devices, L at most; one is there always. By default 1, 2, 3 and L.
        workers: Compare a run on this many worker processes too, with one device each.
        global_batch: Examples per step; by default those of the data.
        epochs: Epochs to train.
        seed: Seeds Python, NumPy and Keras before `data` and before `build`, and the run.
        timeout_s: Seconds that one run may take.
        on_start: Called with each run when it starts; by default it is logged.
        on_report: Called with the report; by default it is printed.

    Returns:
        The report; `.equal` is the verdict, `.first` the first array that differs by run.

    Raises:
        ParityError: When an argument is wrong, or a run fails or takes too long.
        TfscaleError: What logical replicas or `deterministic` refuse of the model, by its own name.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import tfscale
        >>> script = '''
        ... import keras
        ... import numpy as np
        ...
        ... def build():
        ...     layers = [keras.Input((4,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
        ...     model = keras.Sequential(layers)
        ...     model.compile("adam", "mse")
        ...     return model
        ...
        ... def data():
        ...     return np.random.normal(size=(50, 4)), np.random.normal(size=50)
        ... '''
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     file = Path(directory, "train.py")
        ...     _ = file.write_text(script)
        ...     report = tfscale.verify_bitwise(f"{file}:build", f"{file}:data", num_replicas=(1, 3))
        train.py:build on train.py:data, 1 epoch of 2 steps, global batch 32, 4 logical replicas, seed 0
        run        quantity          arrays  verdict  first that differs
        3 devices  data                   1  equal
        ...
        Equal to the bit: 3 devices, as 1 device.
        Bits depend besides on what is here: tensorflow ...
        >>> report.equal
        True
    """
    runs = choose_bitwise_runs(num_replicas, workers=workers, logical_replicas=logical_replicas)
    script = make_script(build, data, epochs=epochs, seed=seed, global_batch=global_batch, timeout_s=timeout_s)
    with experiment_on(script, timeout_s=timeout_s, on_start=on_start) as experiment:
        report = _compare(experiment, runs, script)
    on_report(report)
    return report


def _compare(experiment: Experiment, runs: Sequence[RunSpec], script: Script) -> BitwiseReport:
    # By itself: what it is refused for, the others are.
    [first] = _outcomes(experiment, runs[:1])
    [reference] = first.workers
    results = _outcomes(experiment, runs[1:])
    rows: list[BitwiseRow] = []
    firsts: dict[str, BitDifference] = {}
    for result in results:
        found = [difference for worker in result.workers for difference in find_bit_differences(worker, reference)]
        rows += _rows(result, found)
        if found:
            firsts[str(result.run)] = found[0]
    causes: tuple[str, ...] = ()
    if firsts:
        [again] = _outcomes(experiment, runs[:1])
        causes = _causes(firsts, find_bit_differences(again.workers[0], reference))
    return BitwiseReport(
        title=_title(script, reference, runs[0]),
        rows=tuple(rows),
        first=firsts,
        causes=causes,
        notes=_notes(reference),
        depends_on=reference.depends_on,
    )


def _outcomes(experiment: Experiment, runs: Sequence[RunSpec]) -> list[RunResult]:
    found = {}
    for result in experiment.run(runs):
        if result.failure is not None:
            raise failed_run(result)
        found[result.run] = result
    return [found[run] for run in runs]


def _rows(result: RunResult, found: Sequence[BitDifference]) -> list[BitwiseRow]:
    rows = []
    for quantity in count_arrays(result.workers[0]):
        of_it = [difference for difference in found if difference.quantity == quantity]
        total = sum(count_arrays(worker)[quantity] for worker in result.workers)
        rows.append(BitwiseRow(str(result.run), quantity, total, len(of_it), of_it[0] if of_it else None))
    return rows


def _causes(firsts: dict[str, BitDifference], again: Sequence[BitDifference]) -> tuple[str, ...]:
    by_quantity = {DATA: _OTHER_DATA, START: _OTHER_WEIGHTS}
    known = [by_quantity[name] for name in by_quantity if any(each.quantity == name for each in firsts.values())]
    if not known:
        known = [_NOT_REPEATABLE.format(first=again[0]) if again else _BY_DEVICES]
    return tuple(f"Likeliest cause: {cause}" for cause in known)


def _title(script: Script, reference: Outcome, run: RunSpec) -> str:
    data = reference.data
    counts = ((script.epochs, "epoch"), (data.num_steps, "step"))
    length = " of ".join(f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counts)
    return (
        f"{script.build} on {script.data}, {length}, global batch {data.global_batch}, "
        f"{run.logical_replicas} logical replicas, seed {script.seed}"
    )


def _notes(reference: Outcome) -> tuple[str, ...]:
    if not reference.model.batch_norm:
        return ()
    return (
        'run with batch_norm="local": BatchNormalization normalises over the rows of one logical replica, since '
        "synchronised statistics need as many devices as logical replicas.",
    )

"""What do rate, batch and speed look like, epoch by epoch?"""

from __future__ import annotations

import csv
import io
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tfscale.gradients.adascale import AdaScaleSGD
from tfscale.gradients.sending import reduction_time
from tfscale.gradients.updaters import innermost
from tfscale.recovery.location import RemotePath, find_directory
from tfscale.recovery.store import Store, StoreError, answer_within
from tfscale.rederive.replica_scaling import current_rate
from tfscale.replicas.deterministic import bits_of_run
from tfscale.replicas.link import link_facts
from tfscale.scaling import BatchPlan
from tfscale.training.callbacks.run_record import RunRecord
from tfscale.training.step.input_wait import INPUT_WAIT

_log = logging.getLogger(__name__)

_CSV = "scaling.csv"
# So long a store may take for an answer.
_ANSWER_S = 30.0
COLUMNS = (
    "epoch",
    "steps",
    "reference_steps",
    "epochs_equivalent",
    "learning_rate",
    "momentum",
    "global_batch",
    "examples_per_s",
    "step_time_s",
)


class ScalingReport(keras.callbacks.Callback):
    """Reports rate, momentum, global batch and speed after every epoch: to the log, to TensorBoard and to a CSV file.

    One row per epoch. `steps` counts optimizer updates since the start of the run, also of one that was resumed;
    `reference_steps = steps * batch_ratio`, the steps of the reference run that saw as many examples, or with AdaScale
    those that were made good, `AdaScaleSGD.position`;
    `epochs_equivalent = steps * global_batch / examples_per_epoch`, empty when the latter is unknown; `learning_rate`
    is that of the next step; `momentum` is SGD's, or Adam's beta_1, or empty. `examples_per_s` and `step_time_s` are
    measured from the begin of an epoch's first batch to the end of its last, without validation; the very first batch
    is left out, because it makes the graph. The last batch of an epoch counts in full.

    Args:
        plan: The batches of the run, `DataParallel.plan`.
        examples_per_epoch: Examples in an epoch.
        directory: Where to write `scaling.csv` and TensorBoard's events, here or in a store ("gs://bucket/run"); None
            for the log alone. On several workers, give it to the chief only. A run that starts at an `initial_epoch`
            goes on in the file that is there. In a directory of this host, `run.jsonl` is beside it, with the logs of
            each epoch and where its time went: `tfscale report` reads it.
        describe: Tells what was derived, for `run.jsonl`; `DataParallel.__str__`, say.
        clock: Seconds, from anywhere.

    Example:
        >>> import keras, numpy as np, tfscale
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse")
        >>> plan = tfscale.BatchPlan(global_batch=4, num_replicas=1, reference_batch=2)
        >>> report = tfscale.callbacks.ScalingReport(plan, examples_per_epoch=8)
        >>> history = model.fit(np.ones((8, 1)), np.ones(8), batch_size=4, epochs=2, verbose=0, callbacks=[report])
        >>> [(row["steps"], row["reference_steps"], row["epochs_equivalent"]) for row in report.rows]
        [(2, 4.0, 1.0), (4, 8.0, 2.0)]
    """

    several_steps_safe = True

    def __init__(
        self,
        plan: BatchPlan,
        *,
        examples_per_epoch: int | None = None,
        directory: str | os.PathLike[str] | None = None,
        describe: Callable[[], str] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ):
        super().__init__()
        self._plan = plan
        self._examples_per_epoch = examples_per_epoch
        self._directory = None if directory is None else find_directory(directory)
        self._record = None if self._directory is None else _record_in(self._directory, plan, describe)
        self._clock = clock
        self._writer: Any = None
        self._is_first = True
        self._start_s: float | None = None
        self._end_s = 0.0
        self._batches = self._untimed = 0
        self.rows: list[dict[str, Any]] = []

    def on_train_begin(self, logs: Any = None) -> None:
        """Starts anew."""
        del logs
        self.rows = []
        self._is_first = True
        if self._record is not None:
            wait = INPUT_WAIT.of(self.model)
            bits = bits_of_run(self.model, self.model.distribute_strategy)
            link = link_facts(self.model.distribute_strategy)
            self._record.begin(bits, lambda: None if wait is None else wait.seconds, link=link)
        if self._directory is not None:
            self._writer = tf.summary.create_file_writer(str(self._directory / "scaling"))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Starts the clock anew."""
        del logs
        if self._record is not None:
            self._record.begin_epoch(epoch, self._steps())
        self._start_s = None
        self._batches = self._untimed = 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Starts the clock."""
        del batch, logs
        if self._record is not None:
            self._record.begin_call()
        if self._start_s is None:
            self._start_s = self._clock()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Reads the clock; `batch` is the last of several steps that run in one call."""
        del logs
        if self._record is not None:
            self._record.end_call()
        self._batches = batch + 1
        self._end_s = self._clock()
        if self._is_first:
            self._is_first = False
            self._start_s, self._untimed = self._end_s, self._batches

    def on_test_begin(self, logs: Any = None) -> None:
        """Starts the clock of validation."""
        del logs
        if self._record is not None:
            self._record.begin_test()

    def on_test_end(self, logs: Any = None) -> None:
        """Reads it."""
        del logs
        if self._record is not None:
            self._record.end_test()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Writes a row."""
        if self._record is not None:
            self._record.end_epoch(epoch, self._steps(), logs, self._sending_s())
        row = self._row(epoch)
        self.rows.append(row)
        shown = ", ".join(f"{name} {value:.6g}" for name, value in row.items() if value is not None)
        _log.info("%s", shown)
        if self._directory is not None:
            _write_csv(self._directory, [row], append=epoch > 0)
            try:
                self._write_events(epoch, row)
            except tf.errors.OpError as error:
                if not isinstance(self._directory, RemotePath):
                    raise
                _log.warning("TensorBoard's events of epoch %d are not in %s: %s", epoch, self._directory, error)

    def on_train_end(self, logs: Any = None) -> None:
        """Closes TensorBoard's file."""
        del logs
        if self._record is not None:
            self._record.end()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def get_state(self) -> dict[str, Any]:
        """Returns what a run that goes on elsewhere has to know; see `Recovery`."""
        return {"rows": self.rows}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on behind the rows of `get_state`; any that the file has after them are made again."""
        self.rows = state["rows"]
        if self._directory is not None:
            _write_csv(self._directory, self.rows, append=False)

    def _write_events(self, epoch: int, row: dict[str, Any]) -> None:
        with self._writer.as_default(step=epoch):
            for name, value in row.items():
                if name != "epoch" and value is not None:
                    tf.summary.write(f"scaling/{name}", float(value), metadata=_scalar())
        self._writer.flush()

    def _reference_steps(self, optimizer: keras.optimizers.Optimizer, steps: int) -> float:
        if isinstance(optimizer, AdaScaleSGD):
            return float(keras.ops.convert_to_numpy(optimizer.position))
        return float(self._plan.steps_to_reference_steps(steps))

    def _sending_s(self) -> float | None:
        """Of all steps but those of the first call, whose time is another."""
        reduction_s = reduction_time(self.model)
        updates = (self._batches - self._untimed) / (innermost(self.model.optimizer).gradient_accumulation_steps or 1)
        return None if reduction_s is None else reduction_s * updates

    def _steps(self) -> int:
        return int(keras.ops.convert_to_numpy(innermost(self.model.optimizer).iterations))

    def _row(self, epoch: int) -> dict[str, Any]:
        optimizer = innermost(self.model.optimizer)
        steps = self._steps()
        accumulation = optimizer.gradient_accumulation_steps or 1
        timed = self._batches - self._untimed
        seconds = self._end_s - (self._start_s or 0.0)
        is_timed = timed > 0 and seconds > 0
        seen = self._plan.steps_to_examples(steps * accumulation)
        return {
            "epoch": epoch,
            "steps": steps,
            "reference_steps": self._reference_steps(optimizer, steps),
            "epochs_equivalent": float(seen / self._examples_per_epoch) if self._examples_per_epoch else None,
            "learning_rate": current_rate(optimizer),
            "momentum": getattr(optimizer, "momentum", getattr(optimizer, "beta_1", None)),
            "global_batch": self._plan.global_batch,
            "examples_per_s": timed * self._plan.global_batch / seconds if is_timed else None,
            "step_time_s": seconds / timed * accumulation if is_timed else None,
        }


def _record_in(directory: Path | RemotePath, plan: BatchPlan, describe: Callable[[], str] | None) -> RunRecord | None:
    """None for a store, whose objects cannot be added to."""
    if isinstance(directory, RemotePath):
        return None
    facts = {
        "replicas": plan.num_replicas,
        "global_batch": plan.global_batch,
        "reference_batch": plan.reference_batch,
        "batch_ratio": float(plan.batch_ratio),
    }
    return RunRecord(directory, facts, describe)


def _scalar() -> Any:
    """What marks a summary as a scalar. `tf.summary.scalar` would do, if TensorBoard itself were always installed."""
    metadata = tf.compat.v1.SummaryMetadata()
    metadata.plugin_data.plugin_name = "scalars"
    metadata.data_class = 1  # DATA_CLASS_SCALAR
    return metadata


def _write_csv(directory: Path | RemotePath, rows: Sequence[dict[str, Any]], *, append: bool) -> None:
    if isinstance(directory, RemotePath):
        _write_remote_csv(directory, rows, append=append)
        return
    path = directory / _CSV
    is_new = not (append and path.exists())
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w" if is_new else "a", newline="") as file:
        file.write(_to_csv(rows, with_header=is_new))


def _write_remote_csv(directory: RemotePath, rows: Sequence[dict[str, Any]], *, append: bool) -> None:
    """An object of a store is written as a whole. Where that fails, training goes on."""
    store = Store(directory)

    def write() -> None:
        try:
            old = store.read(_CSV) if append else b""
        except FileNotFoundError:
            old = b""
        store.write(_CSV, old + _to_csv(rows, with_header=not old).encode())

    try:
        answer_within(_ANSWER_S, write, directory)
    except StoreError as error:
        _log.warning("%s is without the rows of this epoch. %s", store.path(_CSV), error)


def _to_csv(rows: Sequence[dict[str, Any]], *, with_header: bool) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS)
    if with_header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()

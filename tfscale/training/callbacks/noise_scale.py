"""How much of the gradient is noise, and so how far would a larger batch pay?"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from typing import Any

import keras

from tfscale.cluster.cores import find_cores
from tfscale.errors import MeasureError, ModelError
from tfscale.framework.optimizers import micro_step_counter
from tfscale.gradients.compression.protocol import Compression
from tfscale.gradients.model_facts import model_facts
from tfscale.gradients.noise import record_noise
from tfscale.gradients.noise_recorder import CAPACITY, OFF, Measured, NoiseRecorder
from tfscale.gradients.sending import compression_of
from tfscale.gradients.updaters import innermost
from tfscale.measure import NoiseScale as Found
from tfscale.measure import TraceRow, estimate_noise_scale, step_moments
from tfscale.measure.sampling import EveryChooser, fixed_s
from tfscale.recovery.location import find_directory
from tfscale.recovery.one_call import ClosedByFit
from tfscale.replicas.agreement import agree_with_chief
from tfscale.replicas.replica_batch import local_replicas, worker_rank
from tfscale.scaling.limits import MAX_CLIPPED_SHARE
from tfscale.training.callbacks.noise_file import NoiseFile
from tfscale.training.step.call_size import steps_of_call

_log = logging.getLogger(__name__)

# The noise grows in a run: only so many of the last measured steps are told together.
_WINDOW = 300


class NoiseScale(ClosedByFit):
    """Measures the noise scale of the gradients: the batch at which noise and gradient are equally long, in examples.

    The gradients of the shards of a step differ by noise alone. A shard is what a replica computes in one pass: its
    rows, or a micro-step of them. With w_i the weight of shard i of K, and g_i its mean gradient, of n examples

    `A = sum_i w_i |g_i|^2`, `q = |sum_i w_i g_i|^2`, `v = n (A - q) / (K - 1)`, `m = q - v / n`,

    and the noise scale is `sum v / sum m` over a window of steps (`tfscale.measure.estimate_noise_scale`), before any
    clipping. Up to about that batch, twice the batch takes about half the steps. It is an order of magnitude: the batch
    at which that ends is 0.3 to 3 times as large for plain SGD and momentum on digits, and up to 8 times smaller in
    published runs.

    Nothing of the run changes: nothing more is sent, and gradients, weights and logs are the same to the bit. One
    replica that takes its rows in one pass has no shards: a measured step costs a second pass, in two halves, with
    Keras's own step; with a `train_step` of one's own nothing can be measured there. Give `micro_batch`, or more
    replicas, and it costs next to nothing.

    To be given to `fit` on every worker, which add up what they have measured at the end of each epoch and after every
    256 measured steps. Of several in one `fit` the last one measures; the one of `dp.callbacks` leaves it to another.

    Args:
        every: Measures one step of so many. `"auto"` compares the times of the first calls with and without, and takes
            as many as make it cost no more than 1 %, where a step takes a replica 5 ms or more of a processor's time;
            what is in every step, measured or not, is a larger part of shorter ones.
        per_layer: Whether to measure each layer too.
        path: Of a CSV file, here or in a store, with a row for each measured step: step, examples so far, v, m, K, n,
            loss (the mean since the row before), seconds (interpolated). Steps are applications of the
            optimizer, those that only accumulate among them. A summary lies beside it, ending in ".json".
            The chief writes. None to write nothing.

    Attributes:
        found: `tfscale.measure.NoiseScale` of the last 300 measured steps; None while there are fewer than 20.
        by_layer: The same of each layer, by name.
        rows: Measured steps of this `fit`.
        clipped_share: Share of them in which the optimizer clips.
        approximate: Why what was found is not exact; empty where it is.

    Raises:
        MeasureError: `every` is neither `"auto"` nor a positive integer; in `fit`, gradients are compressed so that
            what arrives is another gradient (PowerSGD), or the model was compiled without an optimizer.
        ModelError: In `fit`: the model is not prepared.

    Example:
        >>> import keras, numpy as np, tfscale
        >>> dp = tfscale.DataParallel(global_batch=8, micro_batch=2, devices=1)
        >>> with dp.scope():
        ...     model = dp.prepare(keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]))
        ...     model.compile("sgd", "mse")
        >>> noise = tfscale.callbacks.NoiseScale(every=1)
        >>> x = np.random.default_rng(0).normal(size=(256, 3)).astype("float32")
        >>> history = model.fit(x, x.sum(axis=1), batch_size=8, verbose=0, callbacks=[noise])
        >>> noise.found.steps, noise.rows[0].moments.shards, noise.found.low < noise.found.value
        (32, 4, True)

    Reference:
        McCandlish et al. 2018, "An Empirical Model of Large-Batch Training", arXiv:1812.06162.
    """

    several_steps_safe = True

    def __init__(self, every: Any = "auto", per_layer: bool = False, path: str | os.PathLike[str] | None = None):
        super().__init__()
        is_number = isinstance(every, int) and not isinstance(every, bool) and every > 0
        if every != "auto" and not is_number:
            raise MeasureError(f'`every` must be "auto" or a positive integer.\nReceived: every={every!r}.')
        if not isinstance(per_layer, bool):
            raise MeasureError(f"`per_layer` must be True or False.\nReceived: per_layer={per_layer!r}.")
        self._every = every
        self._per_layer = per_layer
        self._file = None if path is None else NoiseFile(path)
        self.yields = False
        """Whether it leaves the measuring to another of its kind."""
        self._recorder: NoiseRecorder | None = None
        self._chooser: EveryChooser | None = None
        self._chosen: int | None = None
        self._resumed: dict[str, Any] | None = None
        self._has_warned = False
        self._forget()

    def _forget(self) -> None:
        self.rows: list[TraceRow] = []
        self.found: Found | None = None
        self.by_layer: dict[str, Found] = {}
        self.clipped_share = 0.0
        self.approximate: list[str] = []
        self._clipped = self._first = self._waiting = self._steps = 0
        self._seen_before = self._began_s = self._start_s = self._taken_s = 0.0
        self._epoch_seen = self._epoch_examples = 0.0
        self._loss = (0.0, 0.0)

    def on_train_begin(self, logs: Any = None) -> None:
        """Makes the step measure, once per model."""
        del logs
        self._forget()
        strategy = self.model.distribute_strategy
        if strategy is None or "make_train_function" not in vars(self.model):
            raise ModelError(
                "`NoiseScale` needs a prepared model: its step measures the gradients.\n"
                f"Received: {self.model.name!r}, not prepared. Use `model = dp.prepare(model)`."
            )
        self._check(strategy.num_replicas_in_sync)
        self._recorder, is_new = record_noise(self.model, strategy, self, per_layer=self._per_layer, yields=self.yields)
        if not self._measures():
            return
        if is_new:
            self.model.make_train_function(force=True)
        self._chooser = (
            EveryChooser(fixed_s(local_replicas(strategy).here, len(find_cores()))) if self._every == "auto" else None
        )
        self._chosen = None
        self._recorder.begin(1 if self._chooser is not None else self._every)
        self._began_s = self._taken_s = time.perf_counter()
        if self._resumed is not None:
            self._seen_before, self._began_s = self._resumed["seen"], self._began_s - self._resumed["seconds"]

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begins or continues the file with the first epoch."""
        del logs
        if not self._measures():
            return
        self._taken_s = time.perf_counter()
        if not self.rows and self._file is not None and self._is_chief():
            last = self._resumed["step"] if self._resumed is not None else self._iterations() if epoch else None
            self._file.begin(last)
        self._resumed = None

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Makes room for the steps of a call, and starts the clock."""
        del logs
        self._first = batch
        if self._measures() and self._waiting + steps_of_call(self.model) > self.most_steps_per_call:
            self._take()
        if self._chooser is not None:
            self._start_s = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Reads the clock; `batch` is the last of several steps that run in one call."""
        del logs
        if not self._measures() or self._recorder is None:
            return
        steps = batch - self._first + 1
        self._steps += steps
        self._waiting += steps
        if self._chooser is not None:
            self._choose(self._chooser, steps)

    @property
    def every(self) -> int | None:
        """One step of so many is measured; None until `"auto"` has chosen."""
        return self._every if isinstance(self._every, int) else self._chosen

    @property
    def most_steps_per_call(self) -> int:
        """A call of more steps would measure more than can be kept; tfscale makes none where it chooses."""
        return CAPACITY * (self.every or 1)

    def _choose(self, chooser: EveryChooser, steps: int) -> None:
        if self._recorder is None:
            return
        chooser.add((time.perf_counter() - self._start_s) / steps)
        if chooser.every is None:
            self._recorder.measure_every(1 if chooser.measures_next else OFF)
            return
        # Clocks differ, and all workers must measure the same steps.
        [self._chosen] = agree_with_chief(self.model.distribute_strategy, [chooser.every])
        self._recorder.measure_every(self._chosen)
        self._chooser = None
        _log.info("noise scale: one step of %d is measured (it adds %.1f %%)", self._chosen, 100 * (chooser.cost or 0))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Tells what was measured."""
        del epoch, logs
        if not self._measures() or self._recorder is None:
            return
        seen, self._epoch_seen = self._recorder.seen() - self._epoch_seen, self._recorder.seen()
        # An epoch that is not made whole has fewer.
        self._epoch_examples = max(self._epoch_examples, seen)
        self._take()
        if not self.rows and self._steps and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "Nothing was measured of the noise in the gradients: it takes two replicas, `micro_batch`, or on one "
                "replica Keras's own step, and gradients that are not summed before the optimizer gets them."
            )
        if self.found is None or not self._is_chief():
            return
        more = [f"approximate: {each}" for each in self.approximate]
        if (self.found.value or self.found.low) > seen:
            more.append(f"more than the {seen:.0f} examples of an epoch, of which it cannot tell")
        if self.clipped_share > MAX_CLIPPED_SHARE:
            more.append(f"clipping bites in {100 * self.clipped_share:.0f} % of the steps")
        _log.info("%s", "; ".join([str(self.found), *more]))

    def on_train_end(self, logs: Any = None) -> None:
        """Ends the measuring."""
        del logs
        self.close()

    def close(self) -> None:
        """Lets later steps be made as if nobody measured; a prepared model's `fit` calls it when it fails, too."""
        if self._recorder is not None and self._measures():
            self._recorder.begin(OFF)
            self._recorder.owner = None
        self._recorder = None

    def get_state(self) -> dict[str, Any]:
        """Returns what a run that goes on elsewhere has to know; see `Recovery`."""
        seen = self._seen_before + (0.0 if self._recorder is None else self._recorder.seen())
        return {"step": self._iterations(), "seen": seen, "seconds": time.perf_counter() - self._began_s}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on behind the rows of `get_state`; any that the file has after them are made again."""
        self._seen_before, self._began_s = state["seen"], time.perf_counter() - state["seconds"]
        self._resumed = state

    def _measures(self) -> bool:
        return self._recorder is not None and self._recorder.owner is self

    def _is_chief(self) -> bool:
        return worker_rank(self.model.distribute_strategy) == 0

    def _iterations(self) -> int:
        return int(keras.ops.convert_to_numpy(micro_step_counter(innermost(self.model.optimizer))))

    def _check(self, num_replicas: int) -> None:
        if getattr(self.model, "optimizer", None) is None:
            raise MeasureError(
                "`NoiseScale` measures the gradients that the compiled optimizer applies.\n"
                f"Received: {self.model.name!r}, compiled without an optimizer. Give one to `compile`."
            )
        compression = compression_of(self.model.optimizer)
        if num_replicas > 1 and compression is not None and compression.exactness == "approximate":
            raise MeasureError(
                "The noise scale compares the gradients of the replicas with their sum, and a compression that leaves "
                "something out has another sum.\n"
                f'Received: compression {compression.name}. Measure with "none", "bf16" or "fp16".'
            )

    def _take(self) -> None:
        recorder = self._recorder
        if recorder is None:
            return
        self._waiting = 0
        now_s, before_s = time.perf_counter(), self._taken_s
        measured = recorder.take()
        self.approximate = sorted(recorder.approximate)
        first = measured[0].row.step if measured else 0.0
        span = max(1.0, measured[-1].row.step - first + 1) if measured else 1.0
        rows = []
        for each in measured:
            at_s = before_s + (now_s - before_s) * (each.row.step - first + 1) / span
            row = self._row(each, recorder.groups, at_s - self._began_s)
            if row is not None:
                rows.append(row)
                self._clipped += each.row.is_clipped > 0
        self._taken_s = now_s
        self.rows += rows
        self._estimate(recorder.groups)
        if self._file is not None and self._is_chief():
            self._file.write(rows, recorder.groups if self._per_layer else [], self.summary())

    def _row(self, measured: Measured, groups: Sequence[str], seconds: float) -> TraceRow | None:
        """None where nothing can be told of the step, such as one that loss scaling skips."""
        row = measured.row
        count, total = row.loss_count - self._loss[1], row.loss_sum - self._loss[0]
        if row.loss_count <= self._loss[1]:
            # Metrics began anew.
            count, total = row.loss_count, row.loss_sum
        self._loss = (row.loss_sum, row.loss_count)
        # Accumulated steps of different sizes count alike in the update: then no weights fit.
        if abs(row.most_examples - row.examples) > 0.5 or row.examples <= 0:
            return None
        shards = round(row.shards) or 1
        pairs = [(sum(measured.squares), sum(measured.norms)), *zip(measured.squares, measured.norms, strict=True)]
        whole, *parts = [step_moments(square, norm, row.examples, shards) for square, norm in pairs]
        if whole is None:
            return None
        layers = {
            name: (part.variance, part.squared_mean)
            for name, part in zip(groups, parts, strict=True)
            if part is not None and self._per_layer
        }
        loss = total / count if count > 0 else None
        return TraceRow(int(row.step) + 1, self._seen_before + row.seen, whole, loss, seconds, layers)

    def _estimate(self, groups: Sequence[str]) -> None:
        window = self.rows[-_WINDOW:]
        self.clipped_share = self._clipped / len(self.rows) if self.rows else 0.0
        self.found = estimate_noise_scale([row.moments for row in window])
        if not self._per_layer or self.found is None:
            return
        for name in groups:
            steps = [row.moments.with_moments(*row.layers[name]) for row in window]
            found = estimate_noise_scale(steps)
            if found is not None:
                self.by_layer[name] = found

    def summary(self) -> dict[str, Any]:
        """Returns what was found, in what can be written as JSON."""
        found = self.found
        return {
            "model": self.model.name,
            **model_facts(self.model),
            "replicas": int(self.model.distribute_strategy.num_replicas_in_sync),
            "noise_scale": None if found is None else found.value,
            "interval": None if found is None else [found.low, found.high],
            "steps_measured": len(self.rows),
            "steps_needed": None if found is None else found.steps_needed,
            "clipped_share": self.clipped_share,
            "approximate": self.approximate,
            # None until the first epoch has ended.
            "examples_per_epoch": self._epoch_examples or None,
            "by_layer": {name: each.value for name, each in self.by_layer.items()},
        }


def noise_scale_beside(
    directory: str | os.PathLike[str] | None, compression: Compression | None, num_replicas: int
) -> list[NoiseScale]:
    """The one among other callbacks of a run, which leaves the measuring to another; none where it cannot measure.

    Args:
        directory: Of the run; with None there is none: a trace that nobody keeps is not worth its place in the graph.
        compression: Of its gradients.
        num_replicas: Of the run.
    """
    if directory is None or (num_replicas > 1 and compression is not None and compression.exactness == "approximate"):
        return []
    made = NoiseScale(path=find_directory(directory) / "noise.csv")
    made.yields = True
    return [made]

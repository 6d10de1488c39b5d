"""Can a step be that of L logical replicas, on however many devices?

What cannot is refused before the first update, and names what it is: a run that depends on the number of devices after
all would be worse than none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import BatchError, ModelError
from tfscale.exact.batch_norm import is_synchronized
from tfscale.exact.plain_step import has_own_step
from tfscale.exact.randomness import make_general_generator, refusing_draws
from tfscale.framework.models import runs_eagerly
from tfscale.gradients.adascale import AdaScaleSGD
from tfscale.gradients.logical_replicas import LogicalReplicas
from tfscale.gradients.sending import Sending
from tfscale.gradients.updaters import accumulates, held_optimizers, innermost
from tfscale.replicas.deterministic import DETERMINISTIC, begin_deterministic
from tfscale.replicas.replica_batch import LOGICAL_REPLICAS, logical_counts
from tfscale.replicas.uncaught import LOGICAL_RUN
from tfscale.scaling import BatchPlan
from tfscale.training.step.options import Options


def check_logical_replicas(logical_replicas: Any, *, num_replicas: int) -> None:
    """Checks `logical_replicas` of `DataParallel` and `prepare`.

    Args:
        logical_replicas: As given; None for a run that is divided among the devices.
        num_replicas: Devices of the job.

    Raises:
        BatchError: When it is no positive integer, or there are more devices.
    """
    if logical_replicas is None:
        return
    if isinstance(logical_replicas, bool) or not isinstance(logical_replicas, int) or logical_replicas < 1:
        raise BatchError(
            "`logical_replicas` must be a positive integer, or None for one replica on each device.\n"
            f"Received: logical_replicas={logical_replicas!r}. Give the number of devices that the run is to be like."
        )
    if logical_replicas < num_replicas:
        raise BatchError(
            f"`logical_replicas` must be at least the number of devices ({num_replicas}): each runs one or more.\n"
            f"Received: logical_replicas={logical_replicas}. Use fewer `devices`, or more logical replicas, which is "
            "another run."
        )


def logical_batch(logical_replicas: int, per_replica_batch: int | None, global_batch: int | None) -> int:
    """The global batch of L logical replicas: b L, or B, which they must divide.

    Raises:
        BatchError: When L does not divide B.

    Example:
        >>> logical_batch(8, 32, None), logical_batch(8, None, 64)
        (256, 64)
    """
    if global_batch is None:
        return (per_replica_batch or 0) * logical_replicas
    if global_batch % logical_replicas:
        fit = [each for each in range(1, global_batch + 1) if global_batch % each == 0]
        near = sorted(sorted(fit, key=lambda each: abs(each - logical_replicas))[:2])
        raise BatchError(
            "`logical_replicas` must divide `global_batch`: each has as many rows.\n"
            f"Received: logical_replicas={logical_replicas}, global_batch={global_batch}. Give, for example, "
            f"logical_replicas={' or '.join(map(str, near))}, or per_replica_batch= in place of global_batch=."
        )
    return global_batch


def plan_logically(
    batches: Mapping[str, Any], logical_replicas: int, num_replicas: int, micro_batch: Any, sending: Sending
) -> BatchPlan:
    """How a step of logical replicas is divided.

    Args:
        batches: `per_replica_batch`, `global_batch` and `reference_batch`, as given.
        logical_replicas: As given, and what is beside it.
        num_replicas: Devices of the job.
        micro_batch: As given beside it.
        sending: How gradients travel.

    Raises:
        BatchError: When there can be no such run.
    """
    check_logical_replicas(logical_replicas, num_replicas=num_replicas)
    check_beside(logical_replicas, micro_batch, sending)
    total = logical_batch(logical_replicas, batches["per_replica_batch"], batches["global_batch"])
    reference = batches["reference_batch"] or batches["per_replica_batch"] or total
    rows = total // logical_replicas
    return BatchPlan(global_batch=total, reference_batch=reference, micro_batch=rows, num_replicas=num_replicas)


def check_beside(logical_replicas: Any, micro_batch: Any, sending: Sending) -> None:
    """Refuses what cannot be given beside `logical_replicas`.

    Args:
        logical_replicas: As given; None for what goes with all.
        micro_batch: As given.
        sending: How gradients travel.

    Raises:
        BatchError: Naming it.
    """
    if logical_replicas is None:
        return
    if micro_batch is not None:
        raise BatchError(
            "`logical_replicas` and `micro_batch` both say how the rows of a device are divided.\n"
            f"Received: logical_replicas={logical_replicas}, micro_batch={micro_batch!r}. Leave `micro_batch` out: a "
            "device holds the rows of one logical replica at a time, and of more of them fewer."
        )
    if sending.compression is not None or sending.double_buffering:
        raise BatchError(
            "With `logical_replicas` gradients travel as they are, and in their own step: what a compression leaves "
            "out, and how old a gradient is, depend on the number of devices.\n"
            f"Received: logical_replicas={logical_replicas}, compression={sending.names()['compression']!r}, "
            f"double_buffering={sending.double_buffering}. Leave these out, or `logical_replicas`."
        )


class LogicalRun:
    """What `prepare` was asked for.

    Args:
        model: The model that is prepared.
        strategy: Its strategy.
        options: By which it is: without `logical_replicas` there is one on each device, and no others.

    Raises:
        BatchError: As `check_logical_replicas` and `begin_deterministic`.
        DeviceError: As `begin_deterministic`.
    """

    def __init__(self, model: keras.Model, strategy: tf.distribute.Strategy, options: Options):
        total = options.logical_replicas
        self._deterministic = options.deterministic
        self._strategy = strategy
        self._num_replicas = int(strategy.num_replicas_in_sync)
        self.total = total
        self._batch_norm = options.batch_norm
        check_logical_replicas(total, num_replicas=self._num_replicas)
        begin_deterministic(options.deterministic, logical_replicas=total)
        if options.deterministic:
            DETERMINISTIC.set(model, True)
        else:
            DETERMINISTIC.forget(model)
        if total is None:
            LOGICAL_REPLICAS.forget(model)
        else:
            LOGICAL_REPLICAS.set(model, total)

    def divide(self, model: keras.Model) -> LogicalReplicas | None:
        """How a replica's rows are divided in a step of `model`, built and compiled; None for one pass over all.

        Raises:
            ModelError: When the step cannot be divided so.
        """
        if self.total is None:
            return None
        if has_own_step(model, "train_step"):
            raise ModelError(
                "`logical_replicas` needs Keras's own `train_step`: one of a class's own is run as a whole.\n"
                f"Received: model {model.name!r} of class {type(model).__name__}. Override `compute_loss` in its "
                "place, or leave `logical_replicas` out."
            )
        if self.total != self._num_replicas and is_synchronized(model, self._batch_norm):
            raise ModelError(
                "Synchronised BatchNormalization needs all logical replicas at the same time: a device that runs "
                "several, one after the other, has forgotten the first one's rows when it knows the moments of all.\n"
                f"Received: model {model.name!r}, {self.total} logical replicas and {self._num_replicas} devices. Give "
                f'batch_norm="local", whose statistics are those of one logical replica, or {self.total} devices.'
            )
        scaled = [each.name for each in map(innermost, held_optimizers(model)) if isinstance(each, AdaScaleSGD)]
        if scaled:
            raise ModelError(
                "AdaScale measures how gradients differ between devices, of which `logical_replicas` may have any "
                f"number.\nReceived: optimizer {scaled[0]!r}. Use another one, or leave `logical_replicas` out."
            )
        if self._deterministic:
            _refuse_what_is_not_to_the_bit(model)
        if self.total == 1:
            return None
        make_general_generator(self._strategy)
        return LogicalReplicas(self.total, deterministic=self._deterministic)

    def drawing_nothing(self, run: Callable[[Any], Any], what: str) -> Callable[[Any], Any]:
        """Has `run`, which knows no logical replicas, refuse to draw by the number of the device.

        Args:
            run: Takes the rows of a replica.
            what: It is, for people.
        """
        if self.total in (None, 1):
            return run

        def run_without_draws(rows: Any) -> Any:
            with refusing_draws(what):
                return run(rows)

        return run_without_draws


def _refuse_what_is_not_to_the_bit(model: keras.Model) -> None:
    """Refuses, with `deterministic=True`, what would depend on the number of devices in the last bits."""
    accumulating = any(map(accumulates, held_optimizers(model)))
    unfit = (
        (model.jit_compile, "jit_compile=True", "XLA makes other kernels of a device's first logical replica"),
        (runs_eagerly(model), "run_eagerly=True", "not every operation has a kernel that adds up in one order"),
        (accumulating, "gradient_accumulation_steps", "each device has accumulated its own part"),
    )
    for is_so, name, reason in unfit:
        if is_so:
            raise ModelError(
                f"With `deterministic=True` a run must not depend on the number of devices, and would: {reason}.\n"
                f"Received: model {model.name!r} with {name}. Leave it out, or `deterministic`: runs then agree to "
                "rounding."
            )


def note_logical_run(strategy: tf.distribute.Strategy, logical_replicas: int | None) -> None:
    """Notes of a strategy whether its run is that of logical replicas; the last `DataParallel` of it says so."""
    if logical_replicas in (None, 1):
        LOGICAL_RUN.forget(strategy)
    else:
        LOGICAL_RUN.set(strategy, logical_replicas)


def refuse_division_by_calls(division: Any) -> None:
    """Refuses a step that was found to mix rows, which is run on all of them.

    Raises:
        ModelError: Where the run is that of logical replicas.
    """
    if isinstance(division, LogicalReplicas):
        raise ModelError(
            "With `logical_replicas` a step computes each row by itself, as losses and layers of Keras do.\n"
            "Received: a step in which rows of the batch meet, so that it needs all at the same time. Leave "
            "`logical_replicas` out."
        )


def describe_logical_replicas(logical_replicas: int | None, num_replicas: int, global_batch: int) -> str:
    """One line for people; empty where there are none.

    Example:
        >>> describe_logical_replicas(8, 3, 64)
        'Logical replicas: 8 of 8 rows each, of which a device runs 2 to 3, one after the other.'
    """
    if logical_replicas is None:
        return ""
    counts = sorted(set(logical_counts(num_replicas, logical_replicas)))
    rows = global_batch // logical_replicas
    return (
        f"Logical replicas: {logical_replicas} of {rows} rows each, of which a device runs "
        f"{' to '.join(map(str, counts))}, one after the other."
    )

"""How does a rate that callbacks change follow the batch?"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import ScalingError
from tfscale.framework.optimizers import has_plain_rate
from tfscale.gradients.adascale import AdaScaleSGD
from tfscale.gradients.route import GradientRoute
from tfscale.gradients.updaters import innermost
from tfscale.rederive.rederived import was_rederived
from tfscale.rederive.schedules import check_warmup
from tfscale.replicas.owners import Fact
from tfscale.scaling import resolve_rule, warmup_factor
from tfscale.scaling.optimizer_table import OPTIMIZERS, find_optimizer
from tfscale.scaling.ratio import check_ratio
from tfscale.scaling.rules import ScalingRule, SqrtRule, rate_factor

# By what a `ReplicaScaling` multiplies the rate that the optimizer shows between two batches.
MULTIPLIER = Fact[float](GradientRoute, "rate_multiplier")


def current_rate(optimizer: keras.optimizers.Optimizer) -> float:
    """Returns the rate of an optimizer's steps, between two batches; this reads the device."""
    updater = innermost(optimizer)
    if isinstance(updater, AdaScaleSGD):
        return _read_rate(updater) * float(keras.ops.convert_to_numpy(updater.gain))
    return _read_rate(updater) * MULTIPLIER.of(updater, 1.0)


class ReplicaScaling(keras.callbacks.Callback):
    """Scales the rate of an optimizer whose rate is a plain number, together with callbacks that change it.

    `rate of a step = m(p) * recipe's rate` with the position `p = step * batch_ratio` in steps of the reference run,
    and `m(p) = 1 + (f - 1) * min(1, p / warmup_steps)`, f the rule's factor for the ratio.

    Between two batches the optimizer's `learning_rate` is the recipe's; during a batch it is the scaled one. So
    `ReduceLROnPlateau`, `LearningRateScheduler` and whatever else reads or sets the rate go on in the recipe's terms, a
    `min_lr` included, and a file holds the recipe's rate. Put it before callbacks that save within an epoch;
    `DataParallel.callbacks` does. It reads the rate once per step.

    Keras's SGD keeps the rate inside its velocity (v = momentum * v - rate * gradient). Whenever the rate changes,
    the velocity is multiplied by new / old, as if it had been at the new rate always.

    Only the rate is scaled, which is all that the linear rule asks of SGD. For other optimizers
    `DataParallel.optimizer` re-derives the betas too, and leaves a plain rate for callbacks to change.

    Args:
        batch_ratio: Global batch / reference batch, positive. At 1 nothing is done.
        rule: `"auto"` (by optimizer), `"linear"`, `"sqrt"`, `"none"`, a `ScalingRule`, a factor, or a function of r.
        warmup_steps: Length of the warm-up from the recipe's rate, in steps of the reference run; 0 for none. It goes
            on where it was when the optimizer's state is loaded, or `fit` gets an `initial_epoch`.
        steps_per_epoch: Needed to resume weights without an optimizer at an `initial_epoch`, if Keras does not know it.

    Raises:
        ScalingError: When an argument is not as above; in `fit`, when the optimizer's rate is a schedule, or was
            re-derived already, or it is not known where in the warm-up to resume.

    Example:
        >>> import keras, numpy as np, tfscale
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse")
        >>> scaling = tfscale.callbacks.ReplicaScaling(4, warmup_steps=16)
        >>> rates = []
        >>> class Watch(keras.callbacks.Callback):
        ...     def on_train_batch_begin(self, batch, logs=None):
        ...         rates.append(round(float(self.model.optimizer.learning_rate), 4))
        >>> history = model.fit(np.ones((6, 1)), np.ones(6), batch_size=1, verbose=0, callbacks=[scaling, Watch()])
        >>> rates
        [0.01, 0.0175, 0.025, 0.0325, 0.04, 0.04]
        >>> round(float(model.optimizer.learning_rate), 4)
        0.01

    Reference:
        Goyal et al. 2017, "Accurate, Large Minibatch SGD", arXiv:1706.02677, sections 2.2 and 3.
    """

    def __init__(
        self, batch_ratio: Any, *, rule: Any = "auto", warmup_steps: Any = 0, steps_per_epoch: int | None = None
    ):
        super().__init__()
        self.batch_ratio = check_ratio(batch_ratio)
        resolve_rule(rule, auto=SqrtRule())
        self._rule = rule
        self._warmup_steps = float(check_warmup(warmup_steps))
        self._steps_per_epoch = steps_per_epoch
        self._factor = 1.0
        self._first_step: int | None = None
        self._skipped: int | None = None
        self._applied: float | None = None
        self._unfinished: tuple[float, float] | None = None
        self._correct: Any = None

    @property
    def several_steps_safe(self) -> bool:
        """Whether a call may take several steps: there is no rate to be set for each."""
        return self.batch_ratio == 1

    def on_train_begin(self, logs: Any = None) -> None:
        """Checks the optimizer."""
        del logs
        if self.batch_ratio == 1:
            return
        optimizer = self._optimizer()
        _check_rate(optimizer)
        rule = resolve_rule(self._rule, auto=_auto_rule(optimizer))
        self._factor = rate_factor(rule, float(self.batch_ratio))
        if self._unfinished is not None and _read_rate(optimizer) == self._unfinished[1]:
            # The last fit was interrupted within a batch.
            optimizer.learning_rate = self._unfinished[0]
        self._unfinished = self._skipped = self._applied = self._correct = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Finds out which step comes next."""
        del logs
        if self.batch_ratio == 1:
            return
        if self._skipped is None:
            self._skipped = self._count_skipped(epoch, int(keras.ops.convert_to_numpy(self._optimizer().iterations)))
        self._first_step = None

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the rate of this batch."""
        del logs
        if self.batch_ratio == 1:
            return
        optimizer = self._optimizer()
        reference = _read_rate(optimizer)
        accumulation = optimizer.gradient_accumulation_steps or 1
        if self._first_step is None:
            # The first batch of an epoch that goes on after a restart is not batch 0.
            steps = int(keras.ops.convert_to_numpy(optimizer.iterations))
            self._first_step = steps + (self._skipped or 0) - batch // accumulation
        step = self._first_step + batch // accumulation
        multiplier = self._multiplier(step)
        rate = reference * multiplier
        if self._applied is None:
            # Of a resumed run: the velocity has the rate of the step before.
            self._applied = reference * self._multiplier(max(step - 1, 0))
        if rate != self._applied:
            self._correct_velocity(rate, self._applied)
        self._applied = rate
        MULTIPLIER.set(optimizer, multiplier)
        if rate != reference:
            optimizer.learning_rate = rate
            self._unfinished = (reference, _read_rate(optimizer))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Gives the optimizer the recipe's rate back."""
        del batch, logs
        if self._unfinished is not None:
            self._optimizer().learning_rate = self._unfinished[0]
            self._unfinished = None

    def on_train_end(self, logs: Any = None) -> None:
        """Lets go of the optimizer."""
        del logs
        MULTIPLIER.forget(self._optimizer())

    def get_state(self) -> dict[str, Any]:
        """Returns what a run that goes on elsewhere has to know; see `Recovery`."""
        return {"skipped": self._skipped, "applied": self._applied}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from what `get_state` returned; the velocity is that of the rate applied last."""
        self._skipped, self._applied = state["skipped"], state["applied"]
        self._first_step = None

    def _optimizer(self) -> keras.optimizers.Optimizer:
        return innermost(self.model.optimizer)

    def _multiplier(self, step: int) -> float:
        return warmup_factor(step * float(self.batch_ratio), self._factor, self._warmup_steps)

    def _count_skipped(self, epoch: int, steps: int) -> int:
        """Steps before `epoch` that the optimizer does not know of, because its state was not loaded."""
        # Once the warm-up is over, or without one, the step does not matter.
        if epoch == 0 or self._factor == 1 or steps * float(self.batch_ratio) >= self._warmup_steps:
            return 0
        per_epoch = self._steps_per_epoch or (self.params or {}).get("steps")
        if per_epoch is None:
            if steps > 0:
                return 0
            raise ScalingError(
                "To resume within a warm-up, the steps before must be known.\n"
                f"Received: initial_epoch={epoch}, an optimizer that has taken no step, and data of unknown length. "
                "Give ReplicaScaling(steps_per_epoch=...), or load the optimizer's state too."
            )
        accumulation = self._optimizer().gradient_accumulation_steps or 1
        return max(0, epoch * per_epoch // accumulation - steps)

    def _correct_velocity(self, new: float, old: float) -> None:
        optimizer = self._optimizer()
        if not isinstance(optimizer, keras.optimizers.SGD) or not optimizer.momentum or old == 0:
            return
        velocities = getattr(optimizer, "momentums", ())
        if not velocities:
            return
        if self._correct is None:

            @tf.function(autograph=False)
            def correct(ratio: tf.Tensor) -> None:
                for velocity in velocities:
                    velocity.assign(velocity.value * tf.cast(ratio, velocity.dtype))

            self._correct = correct
        with self.model.distribute_strategy.scope():
            self._correct(tf.constant(new / old, tf.float32))


def _read_rate(optimizer: keras.optimizers.Optimizer) -> float:
    return float(keras.ops.convert_to_numpy(optimizer.learning_rate))


def _check_rate(optimizer: keras.optimizers.Optimizer) -> None:
    if not has_plain_rate(optimizer):
        raise ScalingError(
            "`ReplicaScaling` is for an optimizer whose learning rate is a plain number.\n"
            f"Received: {optimizer.name!r}, whose rate is a schedule or belongs to several optimizers. "
            "Use `dp.optimizer`, or `ReplicaSchedule` around the schedule."
        )
    if was_rederived(optimizer):
        raise ScalingError(
            "A learning rate must be re-derived for the batch only once.\n"
            f"Received: {optimizer.name!r}, which came from `dp.optimizer`. Leave out one of `dp.optimizer` and "
            "`ReplicaScaling`."
        )


def _auto_rule(optimizer: keras.optimizers.Optimizer) -> ScalingRule:
    cls = type(optimizer)
    name = find_optimizer(cls.__name__) if cls.__module__.startswith("keras.") else None
    return SqrtRule() if name is None else OPTIMIZERS[name].rule(optimizer.get_config())

"""Which arguments of Keras's callbacks count steps, and what do they become?"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Iterable, Iterator
from fractions import Fraction

import keras

from tfscale.errors import ScalingError
from tfscale.framework.fit import profile_batches, profiled_batches
from tfscale.rederive.replica_scaling import ReplicaScaling
from tfscale.scaling import ScaledKnob, scale_callback_argument
from tfscale.scaling.knob import NOT_UNDERSTOOD

# What each class counts in steps; a subclass too.
_PERIODS = {
    keras.callbacks.ModelCheckpoint: "save_freq",
    keras.callbacks.BackupAndRestore: "save_freq",
    keras.callbacks.TensorBoard: "update_freq",
}
# The attributes of other callbacks that sound as if they counted steps.
_SUSPECT = re.compile(r"(^|_)(freq|frequency|steps|batches|interval|every_n|every)$")
_OF_STEPS = re.compile(r"(batch|step|iteration)s?$")
_BATCH_HOOKS = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")

# Where a callback keeps the ratio that it was re-derived for, and its rows: beside the numbers, as in a copy.
_DONE = "rederived_by_tfscale"


def rederive_callbacks(
    callbacks: Iterable[keras.callbacks.Callback], ratio: Fraction
) -> tuple[list[keras.callbacks.Callback], tuple[ScaledKnob, ...]]:
    """Re-derives what callbacks count in steps, on the objects themselves. Once: a second call changes nothing.

    Args:
        callbacks: For `fit`.
        ratio: The batch ratio; at 1 nothing is done.

    Returns:
        The same callbacks, `ReplicaScaling` before those that may save a model; and one row per argument.

    Raises:
        ScalingError: When one is no callback, counts batches where a `LearningRateScheduler` counts epochs, or was
            re-derived for another ratio.

    Warns:
        UserWarning: When an argument may count steps and is not understood: it is left as it is.
    """
    given = list(callbacks)
    for callback in given:
        if not isinstance(callback, keras.callbacks.Callback):
            raise ScalingError(
                "`dp.callbacks` takes Keras callbacks.\n"
                f"Received: {callback!r}. Give a list of keras.callbacks.Callback objects."
            )
    ordered = sorted(given, key=lambda callback: not isinstance(callback, ReplicaScaling))
    if ratio == 1:
        return ordered, ()
    knobs = [knob for callback in ordered for knob in _rederive(callback, ratio)]
    if not any(isinstance(callback, ReplicaScaling) for callback in ordered):
        knobs += [knob for callback in ordered for knob in _unscaled_rates(callback)]
    unknown = [knob.name for knob in knobs if not knob.is_understood]
    if unknown:
        warnings.warn(
            f"Not understood, and so left as they are for the larger batch: {', '.join(unknown)}. Set them yourself.",
            stacklevel=3,
        )
    return ordered, tuple(knobs)


def _rederive(callback: keras.callbacks.Callback, ratio: Fraction) -> tuple[ScaledKnob, ...]:
    _refuse_batch_counting(callback)
    done, rows = getattr(callback, _DONE, (ratio, None))
    if done != ratio:
        raise ScalingError(
            "A callback must be re-derived for the batch only once.\n"
            f"Received: a {type(callback).__name__} that was re-derived for batch_ratio={float(done):g}. "
            "Make a new one."
        )
    if rows is None:
        rows = tuple(_apply(callback, ratio))
        setattr(callback, _DONE, (ratio, rows))
    return rows


def _apply(callback: keras.callbacks.Callback, ratio: Fraction) -> Iterator[ScaledKnob]:
    title = type(callback).__name__
    known = [(cls, name) for cls, name in _PERIODS.items() if isinstance(callback, cls)]
    for _, name in known:
        # TensorBoard turns "batch" into 1, which is as often as can be and stays.
        knob = scale_callback_argument(name, getattr(callback, name), ratio)
        setattr(callback, name, knob.new)
        yield _named(f"{title}.{name}", knob)
    if isinstance(callback, keras.callbacks.TensorBoard):
        knob = scale_callback_argument("profile_batch", profiled_batches(callback), ratio)
        profile_batches(callback, knob.new)
        yield _named(f"{title}.profile_batch", knob)
    if not known and not type(callback).__module__.startswith(("keras.", "tfscale.")):
        for name, value in vars(callback).items():
            if _SUSPECT.search(name) and not name.startswith("_") and isinstance(value, int) and value > 1:
                reason = f"{title} is not known; it may count steps"
                yield ScaledKnob(f"{title}.{name}", "", value, value, NOT_UNDERSTOOD, reason)


def _named(name: str, knob: ScaledKnob) -> ScaledKnob:
    return ScaledKnob(name, knob.unit, knob.old, knob.new, knob.rule, knob.reason)


def _unscaled_rates(callback: keras.callbacks.Callback) -> Iterator[ScaledKnob]:
    if isinstance(callback, keras.callbacks.LearningRateScheduler):
        name = getattr(callback.schedule, "__name__", type(callback.schedule).__name__)
        reason = "a function may return the recipe's rates: add ReplicaScaling, which scales them"
        yield ScaledKnob("LearningRateScheduler.schedule", "per epoch", name, name, NOT_UNDERSTOOD, reason)


def _refuse_batch_counting(callback: keras.callbacks.Callback) -> None:
    """Refuses a `LearningRateScheduler` whose class acts on batches, or whose function says that it takes one."""
    if not isinstance(callback, keras.callbacks.LearningRateScheduler):
        return
    own = [
        name for name in _BATCH_HOOKS if getattr(type(callback), name) is not getattr(keras.callbacks.Callback, name)
    ]
    try:
        first = next(iter(inspect.signature(callback.schedule).parameters), "")
    except (TypeError, ValueError):
        first = ""
    if own or _OF_STEPS.search(first):
        sign = f"{type(callback).__name__}.{own[0]}" if own else f"a schedule function of {first!r}"
        raise ScalingError(
            "A `LearningRateScheduler` must count epochs, which stay what they are when the batch grows.\n"
            f"Received: {sign}, which counts batches. Put the rule into a LearningRateSchedule and give it to the "
            "optimizer, or into `ReplicaSchedule`."
        )

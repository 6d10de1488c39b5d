"""How much do the gradients of the shards of one step differ?

A shard is what a replica computes in one pass: all of its rows, or a micro-step of them. Each replica adds up the
squares of its own shards' gradients, weighted as in `tfscale.measure.step_moments`, in variables of its own; where the
gradients have been added up, it notes the square of their sum beside. Nothing is sent: what travels in a step, and in
which order it is added up, is the same as without. The replicas' sums are added up on the host, from time to time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfscale.exact.loss_weights import forget_parts, noted_parts
from tfscale.exact.terms import is_recording
from tfscale.framework.losses import loss_entries
from tfscale.gradients.noise_recorder import NoiseRecorder
from tfscale.gradients.parts import Part
from tfscale.gradients.route import GradientRoute
from tfscale.gradients.updaters import accumulates
from tfscale.replicas.owners import Fact
from tfscale.replicas.share import Share, num_replicas

_OWN_DENOMINATORS = "terms of the loss have denominators of their own, and shards are weighed by their rows"
RECORDER = Fact[NoiseRecorder](GradientRoute, "noise_recorder")


def record_noise(
    model: keras.Model, strategy: tf.distribute.Strategy, owner: Any, *, per_layer: bool, yields: bool
) -> tuple[NoiseRecorder, bool]:
    """Returns the recorder of the compiled optimizer of `model`, and whether its step has to be traced anew.

    Args:
        model: Prepared and built.
        strategy: Of the model.
        owner: Who takes what is measured.
        per_layer: As `NoiseRecorder`.
        yields: Whether it stays that of another owner, if there is one.
    """
    known = RECORDER.of(model.optimizer)
    if known is not None and known.owner is not None and yields:
        return known, False
    is_new = known is None or known.per_layer != per_layer
    if known is not None:
        known.owner = None
    if known is None or is_new:
        known = RECORDER.set(model.optimizer, NoiseRecorder(model, strategy, per_layer=per_layer))
    known.owner = owner
    return known, is_new


def _recorder_of(optimizer: Any) -> NoiseRecorder | None:
    if optimizer is None or is_recording():
        return None
    return RECORDER.of(optimizer)


def weight_of_pass(model: keras.Model, share: Share) -> list[tf.Tensor]:
    """The weight of the rows at hand, for `note_pass`; to be called where their loss was made. Nothing while off."""
    recorder = _recorder_of(model.optimizer)
    return [] if recorder is None else [_weight(recorder, share, num_terms=len(loss_entries(model)))]


def _weight(recorder: NoiseRecorder, share: Share, *, num_terms: int = 1) -> tf.Tensor:
    parts = noted_parts(share)
    forget_parts()
    if parts and (len(parts) > 1 or num_terms > 1):
        recorder.approximate.add(_OWN_DENOMINATORS)
        parts = ()
    return tf.cast(parts[0] if parts else share.weight, tf.float32)


def note_pass(model: keras.Model, part: Part, found: list[Any], num_gradients: int) -> list[Any]:
    """Notes what one pass of Keras's own step has found of its rows; returns that without what was for this alone.

    Args:
        model: Whose step it is.
        part: The rows.
        found: The gradients, whatever else, and at the end what `weight_of_pass` has returned.
        num_gradients: How many gradients.
    """
    optimizer = model.optimizer
    recorder = _recorder_of(optimizer)
    if recorder is None:
        return found
    *rest, weight = found
    if part.share.is_whole:
        recorder.note_probe(model, part)
        return rest
    is_first = isinstance(part.index, int) and part.index == 0
    recorder.note_shard(rest[:num_gradients], weight, _factor(optimizer), part.share, is_first=is_first)
    return rest


def note_own_gradients(optimizer: keras.optimizers.Optimizer, gradients: Sequence[Any], share: Share) -> None:
    """As `note_pass` for a step of one's own, where it hands weighted gradients of its rows to an optimizer."""
    recorder = _recorder_of(optimizer)
    if recorder is not None:
        weight = _weight(recorder, share)
        recorder.note_shard(gradients, weight, _factor(optimizer), share, is_first=True)


def note_total(updater: keras.optimizers.Optimizer, gradients: Sequence[Any], scale: Any) -> None:
    """Notes gradients of the global batch, where they have been added up.

    Args:
        updater: That applies them.
        gradients: As its `apply` gets them.
        scale: What they are multiplied by, against underflow.
    """
    recorder = _recorder_of(updater)
    if recorder is not None:
        recorder.note_total(updater, gradients, scale * (num_replicas() if accumulates(updater) else 1.0))


def _factor(optimizer: keras.optimizers.Optimizer) -> Any:
    return optimizer.scale_loss(1.0) * (num_replicas() if accumulates(optimizer) else 1.0)

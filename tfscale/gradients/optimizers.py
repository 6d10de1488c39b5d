"""Where in an update are gradients reduced?

Once, before anything else looks at them. Keras reduces after clipping, decay and accumulation; here the reduced
gradients enter, and clipping, weight decay, loss scaling, EMA and the update then run on every replica alike.

With gradient accumulation nothing is sent on the micro-steps. Replica i of N adds N times its part of the gradient to
its own accumulators, and an update reduces their mean: so the accumulated gradient of the global batch is the *mean*
of the replicas' accumulators at any time, and to make the copies equal, as in a file, is to average them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.exact.divided_calls import divides_calls
from tfscale.exact.overflow import overflowing_as_one
from tfscale.exact.randomness import drawing_alike
from tfscale.exact.terms import is_recording, meet_term, noted_sums, sums_where_read
from tfscale.framework.autograph import in_place_of
from tfscale.framework.optimizers import (
    clips_gradients,
    gradient_accumulators,
    hook_gradients,
    scalar_variables,
    trained_variables,
)
from tfscale.framework.replicas import write_locally
from tfscale.gradients.adascale import AdaScaleSGD, OwnMoments, own_moments
from tfscale.gradients.averages import average_once_per_update
from tfscale.gradients.by_hand import are_summed_by_hand, refuse_mean_of_parts
from tfscale.gradients.double_buffer import buffer_of, take_turns, takes_turns
from tfscale.gradients.noise import note_own_gradients, note_total
from tfscale.gradients.own_noise import note_own_noise
from tfscale.gradients.scaled_losses import unweighted, weigh_where_scaled
from tfscale.gradients.scope_checks import check_inside_scope, check_updated
from tfscale.gradients.sending import sum_over_replicas
from tfscale.gradients.sums import times, value_of
from tfscale.gradients.updaters import accumulates, innermost, updaters_of
from tfscale.replicas.all_reduce import all_reduce_sum
from tfscale.replicas.callers import callers
from tfscale.replicas.graph_walk import depends_on
from tfscale.replicas.replica_count import current_part, is_in_loop
from tfscale.replicas.share import Share, current_share, num_replicas
from tfscale.step_context import Flag, StepContext, continuing, step_context

_REDUCED = Flag("gradients_are_reduced")
_ANSWERING = Flag("answers_optimizer")


def gradients_reduced() -> contextlib.AbstractContextManager[None]:
    """Says that the gradients given to `optimizer.apply` in this thread are those of the global batch already."""
    return _REDUCED.raised()


def _are_reduced() -> bool:
    return _REDUCED.is_raised or tf.distribute.get_replica_context() is None


def reduce_gradients_once(optimizer: keras.optimizers.Optimizer) -> None:
    """Makes `optimizer.apply` reduce gradients over replicas first, and only once. Idempotent.

    Args:
        optimizer: Any Keras optimizer, `LossScaleOptimizer` included. Its state and config stay as they are.
    """
    inner = innermost(optimizer)
    for updater in updaters_of(inner):
        _reduce_before_update(updater)
    for variable in (*scalar_variables(optimizer), *scalar_variables(inner)):
        write_locally(variable)
    apply_alone = type(optimizer).apply.__get__(optimizer)

    def apply(grads: Any, trainable_variables: Any = None) -> Any:
        # A constraint, a schedule or an update of one's own may draw.
        with drawing_alike():
            return apply_alone(grads, trainable_variables)

    @in_place_of(apply_alone)
    def apply_reduced(grads: Any, trainable_variables: Any = None) -> Any:
        grads, trainable_variables = [value_of(each) for each in grads], _as_list(trainable_variables)
        check_updated(optimizer, trainable_variables)
        share = current_share()
        if share is not None and share.num_replicas == 1:
            _meet_gradients(optimizer, grads, trainable_variables, is_global=True)
            return apply(grads, trainable_variables)
        if _are_made_of_sums(grads) or _are_summed_in_loop(grads, trainable_variables):
            if is_recording():
                # Replicas that have the same gradients would have others.
                note_own_noise(grads)
            _meet_gradients(optimizer, grads, trainable_variables, is_global=True)
            with gradients_reduced():
                return apply(grads, trainable_variables)
        grads = _weigh(optimizer, grads, trainable_variables)
        if takes_turns(optimizer) and not _are_reduced():
            take_turns(optimizer, grads, trainable_variables, functools.partial(_apply_sums, apply))
            return None
        if accumulates(optimizer) or updaters_of(optimizer) == [optimizer]:
            return apply(grads, trainable_variables)
        # One reduction for several inner optimizers. And loss scaling looks for infinities first: it must skip a step
        # on all replicas or on none.
        grads = _reduce_unless_reduced(optimizer, grads)
        with gradients_reduced():
            return apply(grads, trainable_variables)

    if optimizer is not inner:
        apply_alone = _handing_on(apply_alone, inner)
    optimizer.apply = apply_reduced
    weigh_where_scaled(optimizer)
    if optimizer is not inner and accumulates(optimizer):
        # Here the gradients stay local until the update: the replicas agree on one number instead.
        check_finite = type(optimizer).check_finite.__get__(optimizer)
        optimizer.check_finite = lambda grads: _all_agree(check_finite(grads))


def _handing_on(apply: Callable[..., Any], inner: keras.optimizers.Optimizer) -> Callable[..., Any]:
    """The `apply` of a `LossScaleOptimizer`, which eagerly has the one inside of it run by other threads.

    TensorFlow starts one for each replica where they have met, and it inherits nothing of the replica's step.
    """
    contexts: dict[str, StepContext] = {}
    apply_inside = type(inner).apply.__get__(inner)

    def apply_in_step(grads: Any, trainable_variables: Any = None) -> Any:
        if not contexts:
            return apply_inside(grads, trainable_variables)
        # A replica that runs as the only one is handed on to all of them.
        with continuing(contexts.get(_device_here()) or next(iter(contexts.values()))):
            return apply_inside(grads, trainable_variables)

    def apply_and_hand_on(grads: Any, trainable_variables: Any = None) -> Any:
        if not tf.executing_eagerly():
            return apply(grads, trainable_variables)
        device = _device_here()
        contexts[device] = step_context()
        try:
            return apply(grads, trainable_variables)
        finally:
            del contexts[device]

    inner.apply = apply_in_step
    return apply_and_hand_on


def _device_here() -> str:
    """Of the replica, which may be told that it is the only one."""
    context = tf.distribute.get_replica_context()
    return "" if context is None else str(tf.nest.flatten(context.devices)[0])


def _apply_sums(apply: Callable[..., Any], sums: Sequence[Any], variables: Sequence[keras.Variable]) -> None:
    with gradients_reduced():
        apply(sums, variables)


def flush_waiting(optimizer: keras.optimizers.Optimizer) -> None:
    """Makes the update whose gradients wait for the next step, if there are any. Outside of a step, by every worker."""
    buffer = buffer_of(optimizer)
    if buffer is not None:
        buffer.flush(optimizer, lambda own, sums, variables: _apply_sums(own.apply, sums, variables))


def _reduce_before_update(updater: keras.optimizers.Optimizer) -> None:
    hook_gradients(updater, lambda gradients: _reduce_unless_reduced(updater, gradients))
    if accumulates(updater) and updater.use_ema:
        average_once_per_update(updater)
    for variable in scalar_variables(updater):
        write_locally(variable)


def gradient_weight(optimizer: keras.optimizers.Optimizer, share: Share) -> Any:
    """By what a replica multiplies the loss of its own rows, or the gradient of it."""
    return share.weight * (share.num_replicas if accumulates(optimizer) else 1.0)


def _weigh(optimizer: keras.optimizers.Optimizer, gradients: list[Any], variables: Any) -> list[Any]:
    """A custom `train_step` gives the gradients of its replica's own loss: they are weighted here."""
    share = current_share()
    if share is None:
        # Parts of a sum, of which accumulators hold the mean.
        return [times(each, num_replicas()) for each in gradients] if accumulates(optimizer) else gradients
    if not share.weights_gradients:
        if is_recording():
            _meet_gradients(optimizer, _of_global_batch(optimizer, gradients), variables, is_global=True)
        return gradients
    gradients = unweighted(gradients, share)
    is_sum = _meet_gradients(optimizer, gradients, variables, is_global=False)
    factor = share.num_replicas if accumulates(optimizer) else 1.0
    weight = (share.is_counted(tf.float64) if is_sum else share.weight) * factor
    weighted = [times(gradient, weight) for gradient in gradients]
    note_own_gradients(optimizer, weighted, share)
    return weighted


def _of_global_batch(optimizer: keras.optimizers.Optimizer, gradients: list[Any]) -> list[Any]:
    """What Keras's own step gives to an optimizer is weighted, and reduced already unless it is accumulated first."""
    if _are_reduced():
        return gradients
    sums = all_reduce_sum(gradients)
    return (
        [times(each, tf.constant(1 / num_replicas(), tf.float64)) for each in sums] if accumulates(optimizer) else sums
    )


def _meet_gradients(optimizer: Any, gradients: list[Any], variables: Any, *, is_global: bool) -> bool:
    named = trained_variables(innermost(optimizer)) if variables is None else variables
    names = [getattr(variable, "path", None) or variable.name for variable in named or ()]
    label = f"optimizer {optimizer.name!r}"
    return meet_term("gradients", optimizer, label, gradients, names or [label] * len(gradients), is_global=is_global)


def _as_list(variables: Any) -> Any:
    return variables if variables is None else list(variables)


def _are_made_of_sums(gradients: list[Any]) -> bool:
    """Whether gradients were made of what `sum_gradients` returned in this step."""
    if sums_where_read():
        return True
    sums = noted_sums()
    if not sums or _are_reduced():
        return False
    if tf.executing_eagerly():
        # Without a graph nobody knows what was made of what: in such a step all of them are.
        return True
    present = [gradient for gradient in gradients if gradient is not None]
    return depends_on(present, lambda op: id(op) in sums)


def _are_summed_in_loop(gradients: list[Any], variables: Sequence[Any]) -> bool:
    """Whether a loop by hand has summed its gradients itself."""
    if current_share() is not None or not is_in_loop() or _are_reduced():
        return False
    return are_summed_by_hand(gradients, variables, tf.distribute.get_strategy())


def answer_all_reduce(value: Any, send: Callable[[Any], Any], mean: Callable[[Any], Any] | None = None) -> Any:
    """What a replica gets back where TensorFlow would sum `value` over all of them.

    An optimizer that was made in the step itself, and so was not met before it, has its gradients weighted here.

    Args:
        value: Of this replica.
        send: TensorFlow's way to sum it.
        mean: Its way to take the mean, in which all replicas count alike, where that was asked for.
    """
    if mean is not None:
        return _mean_over_rows(value, send, mean)
    share = current_share()
    if share is None or _ANSWERING.is_raised:
        return send(value)
    asking = callers(keras.optimizers.Optimizer, "_all_reduce_sum_gradients")
    if share.num_replicas == 1:
        # The way back through a collective of a divided call is taken outside of it.
        return send(value) if divides_calls() and not asking else value
    if not asking:
        return send(value)
    optimizer = asking[0]
    if clips_gradients(optimizer) or accumulates(optimizer):
        raise ModelError(
            "An optimizer that clips or accumulates gradients must exist before the step in which it is used.\n"
            f"Received: {optimizer.name!r}, made inside of it or outside of the strategy's scope. Make it under "
            "`with dp.scope():`, before `fit`."
        )
    check_inside_scope(innermost(optimizer).variables, "optimizer", optimizer.name)
    gradients = list(value)
    # The sums are asked for on the optimizer's behalf, too.
    with _ANSWERING.raised():
        return all_reduce_sum(_weigh(optimizer, gradients, [optimizer] * len(gradients)))


def _mean_over_rows(value: Any, send: Callable[[Any], Any], mean: Callable[[Any], Any]) -> Any:
    """The mean in which a replica counts by its rows: what a variable with `aggregation` MEAN is set to."""
    part, share = current_part(), current_share()
    if part is not None:
        refuse_mean_of_parts(value)
    if share is not None and share.num_replicas == 1:
        # A lone replica would wait for the others, which do not take part.
        return mean(value) if divides_calls() else value
    if share is not None and all(getattr(each, "dtype", tf.int32).is_floating for each in tf.nest.flatten(value)):
        part = functools.partial(tf.cast, share.weight)
    return mean(value) if part is None else send(_weighted_by(part, value))


def _weighted_by(part: Callable[[tf.DType], tf.Tensor], value: Any) -> Any:
    return tf.nest.map_structure(lambda own: times(own, part(own.dtype)), value)


def reduce_together(
    optimizer: keras.optimizers.Optimizer, gradients: Sequence[Any], others: Sequence[Any], *, scale: Any
) -> tuple[list[Any], list[Any]]:
    """Sums gradients and whatever else over all replicas in one collective; what AdaScale measures travels along.

    Args:
        optimizer: The one that will apply the gradients.
        gradients: Those of this replica, weighted by its share.
        others: Tensors to be summed too.
        scale: What the gradients are multiplied by, against underflow.

    Returns:
        The sums of the gradients, and of the others.
    """
    updater, share = innermost(optimizer), current_share()
    if is_recording():
        sums = all_reduce_sum([*gradients, *others])
        return overflowing_as_one(gradients, sums[: len(gradients)]), sums[len(gradients) :]
    moments: Sequence[Any] = ()
    if share is not None and share.num_replicas > 1 and isinstance(updater, AdaScaleSGD) and updater.built:
        moments = own_moments(gradients, share)
    sums, rest = sum_over_replicas(updater, gradients, [*moments, *others], scale)
    sums = overflowing_as_one(gradients, sums)
    if share is not None and moments:
        squares, replicas, *rest = rest
        updater.observe(OwnMoments(squares, replicas), sums, share.global_examples, scale)
    note_total(updater, sums, scale)
    return sums, rest


def _reduce_unless_reduced(optimizer: keras.optimizers.Optimizer, gradients: list[Any]) -> list[Any]:
    if _are_reduced():
        return gradients
    if is_recording():
        note_own_noise(gradients)
    # In a `LossScaleOptimizer` the gradients are still scaled; its inner one, and any other, has unscaled them.
    is_scaled = optimizer is not innermost(optimizer)
    reduced, _ = reduce_together(optimizer, gradients, [], scale=optimizer.scale_loss(1.0) if is_scaled else 1.0)
    if not accumulates(optimizer):
        return reduced
    return [gradient if gradient is None else gradient / num_replicas() for gradient in reduced]


def _all_agree(finite: tf.Tensor) -> tf.Tensor:
    if tf.distribute.get_replica_context() is None:
        return finite
    (failures,) = all_reduce_sum([tf.cast(tf.logical_not(finite), tf.float32)])
    return tf.equal(failures, 0)


def average_accumulators(optimizer: keras.optimizers.Optimizer) -> None:
    """Makes the copies of the accumulated gradients equal, so that a file holds those of the global batch.

    To be called by every replica. Costs one reduction of the size of the gradients.
    """
    accumulators = gradient_accumulators(innermost(optimizer))
    totals = all_reduce_sum([tf.convert_to_tensor(variable.value) for variable in accumulators])
    for variable, total in zip(accumulators, totals, strict=True):
        variable.assign(total / num_replicas())

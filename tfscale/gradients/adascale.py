"""AdaScale: what is a larger batch worth at this very step? Measured from the gradients themselves.

The noise in the gradients of the replicas tells how much of a gradient is noise. Where noise dominates, one step on a
batch r times larger is worth r steps of the reference run; where it does not, one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfscale.errors import ScalingError
from tfscale.exact.norms import squared_norm
from tfscale.replicas.share import Share
from tfscale.step_context import Flag

# Whether this thread takes a step.
_UPDATING = Flag("adascale_updates")


@keras.saving.register_keras_serializable("tfscale")
class AdaScaleSGD(keras.optimizers.SGD):
    """SGD whose rate grows with the batch as far as the batch reduces noise.

    Let the gradient of one example have the mean mu and the total variance v, and let the reference run take batches of
    B, this one batches of n. Then one step gets

    `gain = (v / B + |mu|^2) / (v / n + |mu|^2)`, between 1 (no noise) and n / B (noise only),

    its rate is `gain * schedule(position)`, and `position`, the step of the reference run, advances by the gain. So a
    run has done what its schedule asks for when `position` reaches the schedule's length; in epochs that is later than
    for the reference run, by n / B over the mean gain.

    v and |mu|^2 are averaged over steps (decay `1 - n / B / 1000`) from estimates that are unbiased for unequal shards
    too: replica i of K has n_i examples with the mean gradient g_i, and with g the mean over all n examples

    `v = (sum_i(n_i / n * |g_i|^2) - |g|^2) * n / (K - 1)`, `|mu|^2 = |g|^2 - v / n`.

    The sum and K are two scalars in the reduction of a step of a prepared model; nothing else is sent. Without
    `prepare`, and on one replica, it is plain SGD. Between two steps `learning_rate` is the recipe's; during one it has
    the gain in it. `DataParallel(recipe=Recipe(rule="adascale"))` makes it of an SGD.

    Args:
        learning_rate: The recipe's rate, or its schedule, which counts steps of the reference run.
        reference_batch: B, the batch that the recipe was tuned for.
        **arguments: As `keras.optimizers.SGD`.

    Attributes:
        gain: Keras variable, float32 scalar: the gain of the last step.
        position: Keras variable, float64 scalar: steps of the reference run that were made good.

    Raises:
        ScalingError: When `reference_batch` is no positive integer, or gradients are accumulated.

    Example:
        >>> import keras, tfscale
        >>> dp = tfscale.DataParallel(global_batch=8, devices=1)
        >>> with dp.scope():
        ...     model = dp.prepare(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))
        ...     sgd = tfscale.AdaScaleSGD(0.1, reference_batch=8, momentum=0.9)
        ...     model.compile(sgd, "mse")
        >>> history = model.fit(keras.ops.ones((16, 2)), keras.ops.ones(16), verbose=0)
        >>> [float(keras.ops.convert_to_numpy(variable)) for variable in (sgd.gain, sgd.position)]
        [1.0, 2.0]

    Reference:
        Johnson et al. 2020, "AdaScale SGD: A User-Friendly Algorithm for Distributed Training", arXiv:2007.05105.
    """

    def __init__(self, learning_rate: Any = 0.01, reference_batch: int = 1, **arguments: Any):
        if isinstance(reference_batch, bool) or not isinstance(reference_batch, int) or reference_batch < 1:
            raise ScalingError(
                "`reference_batch` must be a positive number of examples.\n"
                f"Received: reference_batch={reference_batch!r}. Give the batch that the learning rate was tuned for."
            )
        if arguments.get("gradient_accumulation_steps"):
            raise ScalingError(
                "AdaScale measures the gradients of every step, and cannot accumulate them.\n"
                f"Received: gradient_accumulation_steps={arguments['gradient_accumulation_steps']!r}. "
                "Leave it out, or use rule='linear'."
            )
        super().__init__(learning_rate, **arguments)
        self.reference_batch = reference_batch
        self._schedule = _schedule_or_none(learning_rate)

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """As `keras.optimizers.SGD`; what is measured becomes part of the optimizer's state."""
        if self.built:
            return
        super().build(variables)
        self.gain = self.add_variable((), "ones", "float32", name="gain")
        self.position = self.add_variable((), "zeros", "float64", name="position")
        self._variance = self.add_variable((), "zeros", "float32", name="gradient_variance")
        self._squared_mean = self.add_variable((), "zeros", "float32", name="squared_mean_gradient")

    @property
    def learning_rate(self) -> Any:
        """The recipe's rate at `position`; while a step is taken, times the gain."""
        if not self.built:
            return super().learning_rate
        rate = super().learning_rate if self._schedule is None else self._schedule(self.position)
        if not _UPDATING.is_raised:
            return rate
        rate = tf.convert_to_tensor(rate)
        return rate * tf.cast(self.gain.value, rate.dtype)

    @learning_rate.setter
    def learning_rate(self, learning_rate: Any) -> None:
        keras.optimizers.SGD.learning_rate.fset(self, learning_rate)
        self._schedule = _schedule_or_none(learning_rate)

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[keras.Variable] | None = None) -> None:
        """As `keras.optimizers.SGD`, with the gain in the rate; moves `position` on."""
        with _UPDATING.raised():
            super().apply(grads, trainable_variables)
        self.position.assign_add(tf.cast(self.gain.value, "float64"))

    def observe(self, own: OwnMoments, gradients: Sequence[Any], global_examples: tf.Tensor, scale: Any) -> None:
        """Updates the gain, before the gradients it was measured on are applied.

        Args:
            own: The sum of `own_moments` over all replicas.
            gradients: The gradients of the global batch.
            global_examples: n, the rows of the global batch.
            scale: What the gradients are multiplied by, against underflow.
        """
        variance, squared_mean = estimate(own, _squared_norm(gradients), global_examples)
        variance, squared_mean = variance / scale**2, squared_mean / scale**2
        ratio = global_examples / float(self.reference_batch)
        # One replica's rows say nothing about noise; nor does a step that loss scaling is about to skip.
        is_measured = (own.replicas > 1) & tf.math.is_finite(variance) & tf.math.is_finite(squared_mean)
        memory = tf.where(is_measured, tf.clip_by_value(1.0 - ratio / 1000.0, 0.0, 0.999), 1.0)

        def average(variable: keras.Variable, value: tf.Tensor) -> tf.Tensor:
            new = memory * variable.value + (1.0 - memory) * tf.where(is_measured, value, 0.0)
            variable.assign(new)
            return new

        # Both averages lack the same factor at the start, which cancels in the gain.
        variance = average(self._variance, variance)
        squared_mean = tf.maximum(average(self._squared_mean, squared_mean), 0.0)
        here = variance / global_examples + squared_mean
        gain = (variance / float(self.reference_batch) + squared_mean) / tf.where(here > 0, here, 1.0)
        # Before the first measurement, one step is one step.
        self.gain.assign(tf.where(here > 0, gain, 1.0))

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments."""
        return {**super().get_config(), "reference_batch": self.reference_batch}


class OwnMoments(NamedTuple):
    """What one replica contributes to the measurement; float32 scalars, to be summed over replicas."""

    squares: tf.Tensor
    """`n_i / n * |g_i|^2`."""
    replicas: tf.Tensor
    """1, or 0 for a replica without rows."""


def own_moments(gradients: Sequence[Any], share: Share) -> OwnMoments:
    """Measures the gradients of one replica.

    Args:
        gradients: Its part `n_i / n * g_i` of those of the global batch.
        share: Its share of the rows.
    """
    squares = tf.math.divide_no_nan(_squared_norm(gradients), tf.cast(share.weight, tf.float32))
    return OwnMoments(squares, share.is_counted(tf.float32))


def estimate(total: OwnMoments, squared_norm: Any, global_examples: Any) -> tuple[Any, Any]:
    """Estimates v, the variance of one example's gradient, and `|mu|^2` from one step, without bias.

    The mean over the replicas' rows, weighted by rows, of `|g_i|^2` is expected to be `|mu|^2 + K v / n`, whatever the
    n_i; and `|g|^2` to be `|mu|^2 + v / n`.

    Args:
        total: The sum of `own_moments` over replicas.
        squared_norm: `|g|^2`, of the gradients of the global batch.
        global_examples: n.
    """
    noise = (total.squares - squared_norm) / tf.maximum(total.replicas - 1.0, 1.0)
    return noise * global_examples, squared_norm - noise


def _squared_norm(gradients: Sequence[Any]) -> tf.Tensor:
    """Of all of them together, in float32."""
    return tf.add_n([squared_norm(gradient) for gradient in gradients if gradient is not None])


def _schedule_or_none(learning_rate: Any) -> Any:
    is_schedule = isinstance(learning_rate, keras.optimizers.schedules.LearningRateSchedule)
    return learning_rate if is_schedule else None

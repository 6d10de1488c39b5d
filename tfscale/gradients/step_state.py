"""What does a step change once that every part of it would change?"""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

from tfscale.exact.randomness import separate_generators
from tfscale.gradients.logical_replicas import changed_by_pass, kept_by_layers
from tfscale.gradients.parts import Part
from tfscale.replicas.all_reduce import replica_number


class StepState:
    """What a step changes once, and every micro-step would change again.

    Each part begins with the moving statistics of before the step: what they become is averaged, as over replicas.
    Each draws from streams of its own; after the step the generators are where the first part left them, so that they
    are equal on replicas with different numbers of parts. So is what else a layer keeps, such as a count of its calls.

    Args:
        model: The model that is trained or evaluated.
        statistics: The moving averages of its BatchNormalization layers.
    """

    def __init__(self, model: keras.Model, statistics: Sequence[keras.Variable]):
        self._statistics = list(statistics)
        self._seeds = [generator.state for generator in separate_generators(model)]
        self._seeds += kept_by_layers(model, [*self._statistics, *self._seeds])
        self._before = [tf.convert_to_tensor(each.value) for each in (*self._statistics, *self._seeds)]
        # Weights, which a layer may change in its pass. What no part changes is not read.
        self._weights_before = [(each, tf.convert_to_tensor(each.value)) for each in model.trainable_variables]
        self._after_first: list[tf.Tensor] = []

    def begin(self, part: Part) -> None:
        """To be called before anything else in a part."""
        if isinstance(part.index, int) and part.index == 0:
            return
        for variable, value in zip(self._statistics, self._before, strict=False):
            variable.assign(value)
        for variable, value in zip(self._seeds, self._before[len(self._statistics) :], strict=False):
            # The number of the part is mixed in where it draws.
            variable.assign(value)
        for variable, value in self._weights_before:
            variable.assign(value)

    def end(self, part: Part) -> None:
        """To be called at the end of each part."""
        if isinstance(part.index, int) and part.index == 0:
            changed = {id(each) for each in changed_by_pass([weight for weight, _ in self._weights_before])}
            self._weights_before = [each for each in self._weights_before if id(each[0]) in changed]
            self._seeds += [weight for weight, _ in self._weights_before]
            self._after_first = [tf.convert_to_tensor(seed.value) for seed in self._seeds]

    def finish(self) -> None:
        """To be called after the last part. The statistics are left to whoever reduces them."""
        for variable, value in zip(self._seeds, self._after_first, strict=True):
            variable.assign(value)


class Counts:
    """What the parts of a step add to the states of metrics, where all devices are to have the same sum of them.

    A part counts from zero. What all have counted is added to the copies of the first replica; the others hold zeros.

    Args:
        variables: The states.
    """

    def __init__(self, variables: Sequence[keras.Variable]):
        self._variables = list(variables)
        self._before = [tf.convert_to_tensor(each.value) for each in self._variables]

    def __len__(self) -> int:
        return len(self._variables)

    def begin(self) -> None:
        """To be called before a part."""
        for variable in self._variables:
            variable.assign(tf.zeros_like(variable.value))

    def own(self) -> list[tf.Tensor]:
        """What the part has counted."""
        return [tf.convert_to_tensor(each.value) for each in self._variables]

    def finish(self, sums: Sequence[tf.Tensor]) -> None:
        """To be called with the sums over all parts."""
        for variable, before, total in zip(self._variables, self._before, sums, strict=True):
            variable.assign(before + first_replicas(total))


def first_replicas(total: tf.Tensor) -> tf.Tensor:
    """What the first replica adds to a sum over all of them that is `total`, to the bit: the others add zeros."""
    return tf.where(tf.equal(replica_number(), 0), total, tf.zeros_like(total))

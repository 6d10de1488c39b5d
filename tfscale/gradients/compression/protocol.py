"""What is a compression of gradients?

Two methods, and a state that is handed in and out: nothing is kept in the object, so one object serves any number of
optimizers, and what lies in which variable is decided elsewhere.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

State = tuple[tf.Tensor, ...]
"""What one replica remembers of one gradient from step to step."""

SumOverReplicas = Callable[[Sequence[tf.Tensor]], list[tf.Tensor]]
"""Sums tensors over all replicas, each in its own dtype; all that are given at once travel together."""


class Reduction(NamedTuple):
    """What became of gradients.

    Example:
        >>> import tensorflow as tf, tfscale
        >>> gradients = [tf.constant([0.25, -1.0])]
        >>> as_they_are = tfscale.Reduction(sums=gradients, own=gradients, states=[()])
        >>> [total.numpy().tolist() for total in as_they_are.sums]
        [[0.25, -1.0]]
    """

    sums: list[tf.Tensor]
    """Over all replicas, and equal on all of them; dtypes as given."""
    own: list[tf.Tensor]
    """What of this replica's gradients is in the sums."""
    states: list[State]
    """For the next step."""


class Compression(abc.ABC):
    """How the gradients of all replicas are added with fewer bytes than they have.

    A class of one's own says in `exactness` what it costs: `"exact"`, `"rounding"` or `"approximate"`.

    Example:
        >>> import tensorflow as tf, tfscale
        >>> class Signs(tfscale.Compression):
        ...     exactness = "approximate"
        ...     def initial_state(self, gradient, index):
        ...         return ()
        ...     def reduce(self, gradients, states, sum_over_replicas):
        ...         signs = [tf.sign(gradient) for gradient in gradients]
        ...         bytes_of_signs = [tf.cast(sign, tf.bfloat16) for sign in signs]
        ...         sums = [tf.cast(total, tf.float32) for total in sum_over_replicas(bytes_of_signs)]
        ...         return tfscale.Reduction(sums, own=signs, states=states)
        >>> alone = list   # with one replica, a sum is what was given
        >>> reduction = Signs().reduce([tf.constant([-3.0, 0.5])], [()], alone)
        >>> reduction.sums[0].numpy().tolist()
        [-1.0, 1.0]
    """

    exactness = "approximate"

    @property
    def name(self) -> str:
        """As it is printed."""
        return type(self).__name__

    @abc.abstractmethod
    def initial_state(self, gradient: tf.TensorSpec, index: int) -> State:
        """Returns what a replica remembers of a gradient before the first step; equal on all replicas.

        Args:
            gradient: Its shape and dtype.
            index: Its place among the gradients.
        """

    @abc.abstractmethod
    def reduce(
        self, gradients: Sequence[tf.Tensor], states: Sequence[State], sum_over_replicas: SumOverReplicas
    ) -> Reduction:
        """Sums gradients over all replicas.

        Args:
            gradients: This replica's parts of those of the global batch: their sum is the mean over its examples.
            states: One for each gradient.
            sum_over_replicas: The only way to other replicas. All of them call it alike, as often as they like.
        """

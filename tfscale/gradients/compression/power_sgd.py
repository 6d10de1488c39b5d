"""Gradients as products of two thin matrices."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tfscale.errors import CommunicationError
from tfscale.gradients.compression.error_feedback import ErrorFeedback
from tfscale.gradients.compression.protocol import Compression, Reduction, State, SumOverReplicas

# A tensor travels whole unless the two factors have at most this part of its elements.
_WORTH = 0.5


class LowRank(Compression):
    """PowerSGD's approximation by itself: one step of the power method, without the memory of what it leaves out.

    Args:
        rank: Columns of the factors.
    """

    def __init__(self, rank: int):
        self.rank = rank

    @property
    def name(self) -> str:
        """As it is printed."""
        return f"rank {self.rank}"

    def initial_state(self, gradient: tf.TensorSpec, index: int) -> State:
        """Returns Q, the same random directions on every replica; nothing for a tensor that travels whole."""
        rows, columns = matrix_shape(gradient.shape)
        rank = min(self.rank, rows, columns)
        if not is_worth_it(rows, columns, rank):
            return ()
        return (tf.random.stateless_normal([columns, rank], seed=[index, self.rank]),)

    def reduce(
        self, gradients: Sequence[tf.Tensor], states: Sequence[State], sum_over_replicas: SumOverReplicas
    ) -> Reduction:
        """As `Compression.reduce`: the small tensors and P in one round, Q in another."""
        sums, own, new_states = list(gradients), list(gradients), list(states)
        large = [index for index, state in enumerate(states) if state]
        small = [index for index, state in enumerate(states) if not state]
        matrices = {index: tf.cast(_as_matrix(gradients[index]), tf.float32) for index in large}
        first = [matrices[index] @ states[index][0] for index in large]
        summed = sum_over_replicas([*first, *(gradients[index] for index in small)])
        for index, total in zip(small, summed[len(large) :], strict=True):
            sums[index] = total
        # Householder's method gives orthonormal columns for any matrix, one of zeros included.
        bases = {index: tf.linalg.qr(total).q for index, total in zip(large, summed[: len(large)], strict=True)}
        second = [tf.matmul(matrices[index], bases[index], transpose_a=True) for index in large]
        for index, mine, total in zip(large, second, sum_over_replicas(second) if large else [], strict=True):
            sums[index] = _product(bases[index], total, gradients[index])
            own[index] = _product(bases[index], mine, gradients[index])
            new_states[index] = (total,)
        return Reduction(sums, own, new_states)


class PowerSGD(ErrorFeedback):
    """Sends each large gradient as a product of rank k, and remembers on each replica what that leaves out.

    A gradient is taken as a matrix M of n x m, and approximated by P Q^T with P of n x k and Q of m x k. With M_i and
    e_i the part and the memory of replica i, and Q of the last step (at first random, equal on all replicas):

    `P = orthonormal(sum_i((M_i + e_i) Q))`, `Q_i = (M_i + e_i)^T P`, `Q = sum_i(Q_i)`, `e_i = M_i + e_i - P Q_i^T`

    and P Q^T is applied. (n + m) k numbers are sent in two rounds in place of n m; a tensor travels whole, with the
    first round, unless that is at most half. Approximate: how much accuracy it costs depends on model and rank.

    Args:
        rank: k, at least 1.

    Raises:
        CommunicationError: When `rank` is not a positive integer.

    Example:
        >>> import tensorflow as tf, tfscale
        >>> power = tfscale.PowerSGD(rank=1)
        >>> gradient = tf.constant([[1.0, 2.0, 3.0]] * 4)   # a matrix of rank 1 needs no more
        >>> states = [power.initial_state(tf.TensorSpec([4, 3]), 0)]
        >>> sums, _, states = power.reduce([gradient], states, list)
        >>> bool(tf.reduce_max(tf.abs(sums[0] - gradient)) < 1e-5)
        True

    Reference:
        Vogels et al. 2019, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization",
        arXiv:1905.13727.
    """

    def __init__(self, rank: int = 2):
        if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
            raise CommunicationError(
                "`rank` must be a positive integer.\n"
                f'Received: rank={rank!r}. 1 sends least, 4 approximates better; compression="none" sends all.'
            )
        super().__init__(LowRank(rank))
        self.rank = rank

    @property
    def name(self) -> str:
        """As it is made."""
        return f"PowerSGD(rank={self.rank})"


def matrix_shape(shape: tf.TensorShape) -> tuple[int, int]:
    """Rows and columns of a gradient as a matrix: the last axis, that of the outputs, against all others.

    Example:
        >>> matrix_shape(tf.TensorShape([3, 3, 16, 32])), matrix_shape(tf.TensorShape([10]))
        ((144, 32), (1, 10))
    """
    columns = shape[-1] if shape.rank else 1
    return (shape.num_elements() // columns if columns else 0), columns


def is_worth_it(rows: int, columns: int, rank: int) -> bool:
    """Whether the factors are small enough beside the matrix."""
    return rank > 0 and (rows + columns) * rank <= _WORTH * rows * columns


def _as_matrix(gradient: tf.Tensor) -> tf.Tensor:
    return tf.reshape(gradient, matrix_shape(gradient.shape))


def _product(left: tf.Tensor, right: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.reshape(tf.matmul(left, right, transpose_b=True), gradient.shape), gradient.dtype)

"""Gradients in 16 bits: half of the bytes, and a rounding error."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tfscale.errors import CommunicationError
from tfscale.gradients.compression.protocol import Compression, Reduction, State, SumOverReplicas
from tfscale.replicas.share import num_replicas

# NVIDIA: arithmetic in 16 bits came with compute capability 5.3.
_FP16_CAPABILITY = (5, 3)


class _Cast(Compression):
    """What the two 16-bit types have in common: they round, and remember nothing."""

    exactness = "rounding"

    def initial_state(self, gradient: tf.TensorSpec, index: int) -> State:
        """Returns nothing: rounding needs no memory."""
        del gradient, index
        return ()


class Bfloat16(_Cast):
    """Gradients travel and are added in bfloat16: float32's range with 8 bits of precision.

    Each part, and each of N - 1 additions, is rounded by up to 2^-8 of its value.
    """

    @property
    def name(self) -> str:
        """As in `Network(compression="bf16")`."""
        return "bf16"

    def reduce(
        self, gradients: Sequence[tf.Tensor], states: Sequence[State], sum_over_replicas: SumOverReplicas
    ) -> Reduction:
        """As `Compression.reduce`."""
        sent = [tf.cast(gradient, tf.bfloat16) for gradient in gradients]
        sums = [_cast_like(total, own) for total, own in zip(sum_over_replicas(sent), gradients, strict=True)]
        own = [_cast_like(part, gradient) for part, gradient in zip(sent, gradients, strict=True)]
        return Reduction(sums, own, list(states))


class Float16(_Cast):
    """Gradients travel and are added in float16: 11 bits of precision, and a range that ends at 65504.

    With N replicas each part is divided by P, the power of two from N on, so that no sum of parts up to 65504
    overflows. Larger ones become infinite, which loss scaling sees and answers. What is smaller than P 2^-24 (P times
    6e-8) is lost.

    Args:
        num_replicas: N; by default that of the strategy at hand.
    """

    def __init__(self, num_replicas: int | None = None):
        self._num_replicas = num_replicas

    @property
    def name(self) -> str:
        """As in `Network(compression="fp16")`."""
        return "fp16"

    def reduce(
        self, gradients: Sequence[tf.Tensor], states: Sequence[State], sum_over_replicas: SumOverReplicas
    ) -> Reduction:
        """As `Compression.reduce`."""
        replicas = self._num_replicas or num_replicas()
        divisor = 2.0 ** (replicas - 1).bit_length()

        def restored(total: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
            return _cast_like(total, gradient) * tf.cast(divisor, gradient.dtype)

        sent = [tf.cast(gradient / tf.cast(divisor, gradient.dtype), tf.float16) for gradient in gradients]
        sums = [restored(total, own) for total, own in zip(sum_over_replicas(sent), gradients, strict=True)]
        own = [restored(part, gradient) for part, gradient in zip(sent, gradients, strict=True)]
        return Reduction(sums, own, list(states))


def named_cast(name: str) -> Compression | None:
    """The cast of this name, or None."""
    return {"bf16": Bfloat16, "fp16": Float16}.get(name, lambda: None)()


def _cast_like(value: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    return tf.cast(value, gradient.dtype)


def check_bf16(device_types: Sequence[str]) -> None:
    """Raises `CommunicationError` unless TensorFlow's collectives add bfloat16 on all devices.

    Args:
        device_types: `"CPU"` or `"GPU"` per replica of this worker.

    Example:
        >>> check_bf16(["GPU"])
        Traceback (most recent call last):
        ...
        tfscale.errors.CommunicationError: `compression` "bf16" needs devices on which TensorFlow adds bfloat16 over \
replicas.
        Received: GPUs, on which no collective does, NCCL's neither. Use "fp16" or "none". \
See docs/errors.md#communicationerror.
    """
    if "GPU" in device_types:
        raise CommunicationError(
            '`compression` "bf16" needs devices on which TensorFlow adds bfloat16 over replicas.\n'
            'Received: GPUs, on which no collective does, NCCL\'s neither. Use "fp16" or "none".'
        )


def check_fp16(device_types: Sequence[str], compute_capabilities: Sequence[tuple[int, int]]) -> None:
    """Raises `CommunicationError` unless float16 can be added on all devices.

    Args:
        device_types: `"CPU"` or `"GPU"` per replica of this worker. CPUs convert it in software.
        compute_capabilities: Of the physical GPUs, as far as they are known.

    Example:
        >>> check_fp16(["GPU"], [(5, 2)])
        Traceback (most recent call last):
        ...
        tfscale.errors.CommunicationError: `compression` "fp16" needs devices that compute in float16.
        Received: a GPU of compute capability 5.2; it takes 5.3. Use "none". \
See docs/errors.md#communicationerror.
    """
    if "GPU" not in device_types:
        return
    for capability in compute_capabilities:
        if tuple(capability) < _FP16_CAPABILITY:
            raise CommunicationError(
                '`compression` "fp16" needs devices that compute in float16.\n'
                f"Received: a GPU of compute capability {'.'.join(map(str, capability))}; it takes 5.3. "
                'Use "none".'
            )

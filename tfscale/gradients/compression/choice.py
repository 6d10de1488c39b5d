"""Which compression was asked for?"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfscale.errors import CommunicationError
from tfscale.gradients.compression.casts import Bfloat16, Float16, check_bf16, check_fp16, named_cast
from tfscale.gradients.compression.error_feedback import ErrorFeedback
from tfscale.gradients.compression.protocol import Compression


def choose_compression(requested: Any) -> Compression | None:
    """Resolves the `compression` argument.

    Args:
        requested: `"none"`, `"bf16"`, `"fp16"`, or a `Compression` such as `PowerSGD(rank=2)`.

    Returns:
        The compression, or None for none.

    Raises:
        CommunicationError: When it is none of these.

    Example:
        >>> choose_compression("bf16").exactness
        'rounding'
        >>> choose_compression("none") is None
        True
    """
    if requested == "none":
        return None
    found = named_cast(requested) if isinstance(requested, str) else requested
    if not isinstance(found, Compression):
        raise CommunicationError(
            "`compression` must be 'none', 'bf16', 'fp16', or a tfscale.Compression such as "
            "tfscale.PowerSGD(rank=2).\n"
            f"Received: compression={requested!r}."
        )
    return found


def check_compression_devices(compression: Compression | None, strategy: tf.distribute.Strategy) -> None:
    """Raises `CommunicationError` when the devices of `strategy` cannot add what the compression sends."""
    inner = compression.inner if isinstance(compression, ErrorFeedback) else compression
    kinds = {tf.DeviceSpec.from_string(name).device_type for name in strategy.extended.worker_devices}
    if isinstance(inner, Bfloat16):
        check_bf16(sorted(kinds))
    if isinstance(inner, Float16):
        gpus = tf.config.list_physical_devices("GPU")
        details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
        check_fp16(sorted(kinds), [each["compute_capability"] for each in details if "compute_capability" in each])

"""Two runs of a step that are compared multiply float32 in float32."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf


@contextlib.contextmanager
def full_float32() -> Iterator[None]:
    """Has GPUs multiply float32 in float32 until the end, and then again in what they did before.

    By default those since Ampere multiply in TF32, whose factors have 10 bits: of other numbers of rows the same sums
    come out a thousandth apart, which is as much as many a fault makes. Training is not touched.
    """
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)

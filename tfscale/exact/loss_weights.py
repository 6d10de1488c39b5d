"""Which part of the loss's denominator is that of the rows at hand?

For a mean over examples it is their part of the rows. Masks and weights that a loss divides by have sums of their own:
each such term notes it where it is computed.
"""

from __future__ import annotations

import threading

import tensorflow as tf

from tfscale.replicas.share import Share


class _Noted(threading.local):
    """What this thread has noted in the pass that it traces or runs."""

    share: Share | None = None
    parts: tuple[tf.Tensor, ...] = ()


_NOTED = _Noted()


def note_part(share: Share, own: tf.Tensor, total: tf.Tensor) -> None:
    """To be called by a loss term that divides by something else than the number of examples.

    Args:
        share: Of the rows.
        own: Their part of the denominator.
        total: The denominator of the global batch.
    """
    before = _NOTED.parts if _NOTED.share is share else ()
    _NOTED.share, _NOTED.parts = share, (*before, tf.math.divide_no_nan(own, total))


def noted_parts(share: Share) -> tuple[tf.Tensor, ...]:
    """What the terms of a pass have noted so far."""
    return _NOTED.parts if _NOTED.share is share else ()


def forget_parts() -> None:
    """To be called where they were read: they are tensors of one trace."""
    _NOTED.share, _NOTED.parts = None, ()

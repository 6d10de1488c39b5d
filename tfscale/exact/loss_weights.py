"""Which part of the loss's denominator is that of the rows at hand?

For a mean over examples it is their part of the rows. Masks and weights that a loss divides by have sums of their own:
each such term notes it where it is computed.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tfscale.replicas.share import Share
from tfscale.step_context import Slot


@dataclasses.dataclass
class _Noted:
    """What was noted in the last pass."""

    share: Share | None = None
    parts: tuple[tf.Tensor, ...] = ()


_NOTED = Slot[_Noted]("denominators", _Noted, shown=lambda noted: len(noted.parts))


def note_part(share: Share, own: tf.Tensor, total: tf.Tensor) -> None:
    """To be called by a loss term that divides by something else than the number of examples.

    Args:
        share: Of the rows.
        own: Their part of the denominator.
        total: The denominator of the global batch.
    """
    noted = _NOTED.value
    before = noted.parts if noted.share is share else ()
    noted.share, noted.parts = share, (*before, tf.math.divide_no_nan(own, total))


def noted_parts(share: Share) -> tuple[tf.Tensor, ...]:
    """What the terms of a pass have noted so far."""
    noted = _NOTED.value
    return noted.parts if noted.share is share else ()


def forget_parts() -> None:
    """To be called where they were read: they are tensors of one trace."""
    noted = _NOTED.value
    noted.share, noted.parts = None, ()

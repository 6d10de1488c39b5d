"""Does a loop by hand fill its rows up to the longest of them, so that they are of another length on each replica?

`ragged.to_tensor()`, or a `TextVectorization` in the model. Where what is filled up is masked, the result is that of
one device; a mean over it, or a recurrent layer without a mask, has another one on each replica. No graph tells the
two apart, so a loop is warned of it and goes on.
"""

from __future__ import annotations

import logging
from typing import Any

import tensorflow as tf

from tfscale.replicas.owners import Fact, ReplicaGroup
from tfscale.training.check.thresholds import Asked, taken_apart

_log = logging.getLogger(__name__)

HAS_WARNED = Fact[bool](ReplicaGroup, "was warned of lengths of own rows")
_SHOWN = 3


@tf.autograph.experimental.do_not_convert
def warn_of_own_lengths(strategy: tf.distribute.Strategy, first: int, results: Any) -> None:
    """Warns once of lengths that each replica takes from its own rows.

    Args:
        strategy: Whose `run` was just called. To be called in the same graph.
        first: How many operations the graph had before.
        results: What `run` returned.
    """
    if HAS_WARNED.of(strategy):
        return
    names = taken_apart(strategy, first, results, (), _lengths_of)
    if names:
        HAS_WARNED.set(strategy, True)
        _log.warning(
            "Each replica of a loop by hand takes a length from its own rows (%s), such as that of the longest one, up "
            "to which the others are filled. On one device it is that of the whole batch: unless what is filled up is "
            "masked (`mask_zero=True`), or left out by hand, results differ. Give `to_tensor` a `shape`, "
            "`TextVectorization` an `output_sequence_length`, or take the length of tfscale.gather_rows(lengths).",
            ", ".join(map(repr, names[:_SHOWN])),
        )


def _lengths_of(op: Any) -> list[Asked]:
    """By which numbers an operation makes an axis behind the first one as long as it is."""
    if op.type != "RaggedTensorToTensor":
        return []
    wanted = tf.get_static_value(op.inputs[0])
    if wanted is not None and wanted.ndim and (wanted[1:] >= 0).all():
        return []
    # Where it is told in the graph, that may be of all rows; else it is that of the longest one.
    number = op.inputs[0] if wanted is None else op.inputs[-1]
    # Whatever its shape is: it is not of rows.
    return [Asked(number, 0, lengths=())]

"""Of what is a loop by hand warned, since no graph tells whether it is the same as on one device?

Rows that are filled up to the longest of a replica, by `ragged.to_tensor()` or a `TextVectorization` in the model:
where what is filled up is masked, the result is that of one device; a mean over it, or a recurrent layer without a
mask, has another one on each replica. Functions of Python that get the rows of a replica: they may look at one after
the other, or at all of them. Such a loop goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfscale.replicas.owners import Fact, ReplicaGroup
from tfscale.training.check.thresholds import OF_PYTHON, Asked, taken_apart

_log = logging.getLogger(__name__)

HAS_WARNED = Fact[set[Callable[..., Any]]](ReplicaGroup, "was warned of", lambda asked: [one.__name__ for one in asked])
_SHOWN = 3


@tf.autograph.experimental.do_not_convert
def warn_of_untold(strategy: tf.distribute.Strategy, first: int, results: Any) -> None:
    """Warns of what each replica does with its own rows and no graph tells what it is; of each kind once.

    Args:
        strategy: Whose `run` was just called. To be called in the same graph.
        first: How many operations the graph had before.
        results: What `run` returned.
    """
    has_warned = HAS_WARNED.ensure(strategy, set())
    for asks, message in _WARNINGS.items():
        names = [] if asks in has_warned else taken_apart(strategy, first, results, (), asks)
        if names:
            has_warned.add(asks)
            _log.warning(message, ", ".join(map(repr, names[:_SHOWN])))


def lengths_of(op: Any) -> list[Asked]:
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


def given_to_python(op: Any) -> list[Asked]:
    """What a function of Python is given, whatever its shape is."""
    if op.type not in OF_PYTHON:
        return []
    return [Asked(each, place, lengths=()) for place, each in enumerate(op.inputs)]


_WARNINGS = {
    lengths_of: (
        "Each replica of a loop by hand takes a length from its own rows (%s), such as that of the longest one, up to "
        "which the others are filled. On one device it is that of the whole batch: unless what is filled up is masked "
        "(`mask_zero=True`), or left out by hand, results differ. Give `to_tensor` a `shape`, `TextVectorization` an "
        "`output_sequence_length`, or take the length of tfscale.gather_rows(lengths)."
    ),
    given_to_python: (
        "Each replica of a loop by hand gives its own rows to a function of Python (%s), which nothing looks into. On "
        "one device it gets those of the whole batch: unless it does with each row what it would do with it alone, "
        "results differ. Give it tfscale.gather_rows(x), or apply it in the data set."
    ),
}

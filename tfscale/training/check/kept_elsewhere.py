"""What does a step keep in a queue or a table, which are no variables?

`tf.queue.FIFOQueue`, of earlier pictures, or `tf.lookup.experimental.MutableHashTable`, of counts: all replicas of a
process share one, whichever comes first fills or empties it, and each worker has another. No state of theirs can be
read, compared or put back, so such a step is not even run to be looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfscale.replicas.replica_walk import Frame, ReplicaWalk

# What only looks something up is left alone.
_CHANGES = {
    **dict.fromkeys(("QueueEnqueueV2", "QueueEnqueueManyV2"), "a queue"),
    **dict.fromkeys(("QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2"), "a queue"),
    **dict.fromkeys(("LookupTableInsertV2", "LookupTableRemoveV2", "LookupTableImportV2"), "a table"),
    **dict.fromkeys(("BarrierInsertMany", "BarrierTakeMany"), "a barrier"),
    **dict.fromkeys(("Stage", "Unstage", "MapStage", "MapUnstage", "OrderedMapStage", "OrderedMapUnstage"), "a stage"),
}


def kept_elsewhere(strategy: tf.distribute.Strategy, first: int) -> list[str]:
    """What a step changes that is no variable, such as `"a queue ('QueueEnqueueManyV2')"`.

    Args:
        strategy: That of the step. To be called in the graph in which its `run` was.
        first: How many operations the graph had before the step.
    """
    walk, graph = ReplicaWalk(strategy), tf.compat.v1.get_default_graph()
    return sorted(set(_changed(walk, Frame(graph), graph.get_operations()[first:])))


def describe_kept_elsewhere(changed: Sequence[str], what: str) -> str:
    """The text of the error; empty where nothing was found.

    Args:
        changed: What `kept_elsewhere` returned.
        what: The step, such as "first step of model 'a'".
    """
    if not changed:
        return ""
    return (
        f"The {what} keeps something from step to step that is no variable, so it is not that of one replica: replicas "
        "would share it in any order, and workers not at all. It was not run; nothing was updated by it.\n"
        f"Received: {', '.join(changed)}. Keep it in a variable that is assigned from tfscale.gather_rows(x), the rows "
        'of all replicas, or outside of the step. `prepare(model, check="off")` trains without this check.'
    )


def _changed(walk: ReplicaWalk, frame: Frame, operations: Sequence[Any]) -> list[str]:
    found = []
    for op in operations:
        if op.type in _CHANGES:
            found.append(f"{_CHANGES[op.type]} ({op.type!r})")
        for body in walk.bodies(op, frame):
            found += _changed(walk, body, body.graph.get_operations())
    return found

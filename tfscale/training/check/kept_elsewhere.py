"""What does a step keep in a queue, a table or an iterator, which are no variables?

`tf.queue.FIFOQueue`, of earlier pictures, or `tf.lookup.experimental.MutableHashTable`, of counts: all replicas of a
process share one, whichever comes first fills or empties it, and each worker has another. No state of theirs can be
read, compared or put back, so such a step is not even run to be looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.replicas.replica_walk import Frame, ReplicaWalk

# What only looks something up is left alone.
_CHANGES = {
    **dict.fromkeys(("QueueEnqueueV2", "QueueEnqueueManyV2"), "a queue"),
    **dict.fromkeys(("QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2"), "a queue"),
    **dict.fromkeys(("LookupTableInsertV2", "LookupTableRemoveV2", "LookupTableImportV2"), "a table"),
    **dict.fromkeys(("BarrierInsertMany", "BarrierTakeMany"), "a barrier"),
    **dict.fromkeys(("Stage", "Unstage", "MapStage", "MapUnstage", "OrderedMapStage", "OrderedMapUnstage"), "a stage"),
    **dict.fromkeys(
        ("IteratorGetNext", "IteratorGetNextSync", "IteratorGetNextAsOptional"),
        "its place in an iterator of a data set",
    ),
}


def kept_elsewhere(strategy: tf.distribute.Strategy, first: int) -> list[str]:
    """What a step changes that is no variable, such as `"a queue ('QueueEnqueueManyV2')"`.

    Args:
        strategy: That of the step. To be called in the graph in which its `run` was.
        first: How many operations the graph had before the step.
    """
    walk, graph = ReplicaWalk(strategy), tf.compat.v1.get_default_graph()
    return sorted(set(_changed(walk, Frame(graph), graph.get_operations()[first:])))


@tf.autograph.experimental.do_not_convert
def refuse_kept_elsewhere(strategy: tf.distribute.Strategy, first: int) -> None:
    """Refuses a function of a loop by hand that keeps something which is no variable.

    Args:
        strategy: Whose `run` was just called. To be called in the same graph.
        first: How many operations the graph had before.

    Raises:
        ModelError: Naming it.
    """
    changed = kept_elsewhere(strategy, first) if strategy.num_replicas_in_sync > 1 else []
    if changed:
        raise ModelError(
            "A function of `strategy.run` must keep what it keeps in variables: of anything else replicas would share "
            "one in any order, and workers would not share it at all.\n"
            f"Received: {', '.join(changed)}. Use it outside of the function, and give what it gives as an argument."
        )


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
        "would share it in any order, and workers not at all. Nothing was updated by it.\n"
        f"Received: {', '.join(changed)}. Keep it in a variable that is assigned from tfscale.gather_rows(x), the rows "
        "of all replicas, or outside of the step; data sets can be put together by `tf.data.Dataset.zip`. "
        '`prepare(model, check="off")` trains without this check.'
    )


def describe_iterators(names: Sequence[str], what: str) -> str:
    """The text of the error for a step that runs eagerly and uses iterators.

    Args:
        names: Of the iterators.
        what: The step, for people.
    """
    return (
        f"The {what} runs eagerly and takes from an iterator, of which each replica would get what comes next, and one "
        "device one thing for all rows. It was not run; nothing was updated by it.\n"
        f"Received: {', '.join(names)}. Take what it gives into the data (`tf.data.Dataset.zip((data, more))`), or "
        "into a list that the step indexes by `self.optimizer.iterations`. "
        '`prepare(model, check="off")` trains without this check.'
    )


def describe_kept_numbers(names: Sequence[str], what: str) -> str:
    """The text of a warning for a step that keeps in Python what replicas compute of their own rows.

    Args:
        names: Of what keeps it.
        what: The step, for people.
    """
    return (
        f"the {what} keeps in Python what a replica computed of its own rows: {', '.join(names)}. One replica keeps "
        "another value there, and of several that of one is left; where a later step goes by it, so does that step "
        "differ. Compute it of tfscale.gather_rows(x), the rows of all replicas, or let a keras.metrics object count."
    )


def _changed(walk: ReplicaWalk, frame: Frame, operations: Sequence[Any]) -> list[str]:
    found = []
    for op in operations:
        if op.type in _CHANGES:
            found.append(f"{_CHANGES[op.type]} ({op.type!r})")
        for body in walk.bodies(op, frame):
            found += _changed(walk, body, body.graph.get_operations())
    return found

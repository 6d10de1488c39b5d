"""Does every replica take part in the same collectives, or may one wait for ever?

A condition or a loop is run by each replica for itself. Where a condition's body sends something, all replicas must
decide alike: by variables, numbers or sums of all replicas, which are equal, and not by examples of their own.
In a loop, TensorFlow can send nothing: one turn's numbers could not be told from those of another.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.replicas.replica_walk import LOOPS, Frame, ReplicaWalk


@contextlib.contextmanager
def refusing_lone_collectives(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Refuses a step, traced meanwhile, in which a replica may wait for what another one does not send.

    Raises:
        ModelError: At the end, if the replicas of this process do not send equally often, a loop holds a collective, or
            so does a condition by what differs from replica to replica.
    """
    if strategy.num_replicas_in_sync == 1:
        yield
        return
    if tf.executing_eagerly():
        with _saying_what_did_not_match():
            yield
        return
    graph = tf.compat.v1.get_default_graph()
    # A loop that was there before may be one around all replicas, in which they may send what they like.
    known = len(graph.get_operations())
    yield
    walk = ReplicaWalk(strategy)
    sent = walk.sent_by_device(Frame(graph), first=known)
    if sent and all(sent) and (len(set(sent.values())) > 1 or len(sent) < len(strategy.extended.worker_devices)):
        raise ModelError(
            f"Some replicas send more often than others (each time that {_OCCASIONS}): one would wait for ever.\n"
            f"Received: a step that sends {', '.join(f'{count} times on {device}' for device, count in sent.items())}. "
            "Do not decide by the number of a replica's rows (`x.shape[0]`) whether something is sent."
        )
    for op, frame in walk.branchings(Frame(graph), first=known):
        if op.type in LOOPS:
            raise ModelError(
                f"Inside of a loop {_SENDS}. TensorFlow gives that one key for all turns of the loop, so that "
                "replicas that are not in the same turn would take each other's numbers, or wait for ever.\n"
                f"Received: {op.name!r} of type {op.type}. Write the loop in Python (`for _ in range(n)`), which is "
                "unrolled as the step is traced, or send once, after the loop."
            )
        if walk.may_differ(*walk.decision_of(op, frame)):
            raise ModelError(
                f"Inside of a condition {_SENDS}, and each replica decides by its own rows, or by numbers it draws, "
                "whether it takes part: one could wait for ever.\n"
                f"Received: {op.name!r} of type {op.type}. Decide by what is equal on all replicas: a variable such as "
                "`optimizer.iterations`, or a number made of all rows, `tfscale.gather_rows(x)`; or apply the "
                "optimizer outside of the condition."
            )


@contextlib.contextmanager
def _saying_what_did_not_match() -> Iterator[None]:
    """Names what replicas that run eagerly have done, where TensorFlow says which tensors it met.

    Raises:
        ModelError: In place of TensorFlow's error.
    """
    try:
        yield
    except (AssertionError, tf.errors.OpError) as error:
        found = [known for known in _NOT_MATCHING if known in str(error)]
        if not found:
            raise
        raise ModelError(
            f"All replicas must send the same, in the same order ({_OCCASIONS}).\n"
            f"Received: a step that runs eagerly, and from its replicas what does not belong together ({found[0]}). "
            "Do not decide by a replica's own rows (an `if` of Python) whether something is sent, but by "
            "tfscale.gather_rows(x), which are the rows of all."
        ) from error


# What TensorFlow 2.21 says.
_NOT_MATCHING = ("Values to regroup had different lengths", "Shape mismatch in the collective instance")
_OCCASIONS = "an optimizer is applied, rows are gathered, statistics are synchronized"
_SENDS = f"something is sent to all replicas ({_OCCASIONS})"

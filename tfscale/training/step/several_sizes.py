"""What if parts of a batch have different numbers of rows, as unlabelled examples beside labelled ones?

A share of the ones is no share of the others, and what a step makes of both cannot be weighted. So every replica gets
all rows, and the calls of the step's layers are divided (`exact/divided_calls.py`), each by the rows that it gets.
Whether that is the step of one replica, the look at the first batch says.
"""

from __future__ import annotations

from tfscale.errors import DataError
from tfscale.replicas.batch_rows import leaves_of
from tfscale.replicas.replica_batch import SEVERAL_SIZES, ReplicaBatch
from tfscale.replicas.share import num_replicas

_RULE = "A batch whose parts have different numbers of rows must have its step divided by the calls of layers."


def refuse_several_sizes(batch: ReplicaBatch) -> None:
    """Refuses to divide the rows of a batch that has several numbers of them; one replica has all.

    Args:
        batch: That of a replica.

    Raises:
        DataError: When it has.
    """
    if SEVERAL_SIZES in batch.whole and num_replicas() > 1:
        raise DataError(
            f"{_RULE}\nReceived: {describe_parts(batch)}, and nothing that says that this is right: that takes "
            '`prepare(model, check="auto")`, a step that is no eager one, and a first batch.'
        )


def describe_several_sizes(batch: ReplicaBatch, why: str) -> str:
    """The text of the error for a step that could not be divided so.

    Args:
        batch: That of a replica.
        why: It could not; empty where it was not tried.
    """
    why = why or "It was not: that takes a graph, which `run_eagerly=True` has none of, and no AdaScale."
    return (
        f"{_RULE}\nReceived: {describe_parts(batch)}. {why}\n"
        "Batch all parts by one number (`zip` before one `batch`), or cure that."
    )


def describe_parts(batch: ReplicaBatch) -> str:
    """Which parts of a batch hold the rows of which there are most, and which other ones."""
    most: list[str] = []
    fewer: list[str] = []
    for place, leaf in enumerate(leaves_of(batch.data)):
        if leaf.shape != ():
            (fewer if str(place) in batch.whole else most).append(leaf.path)
    return f"{', '.join(most[:3])} with more rows than {', '.join(fewer[:3])}"

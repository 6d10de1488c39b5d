"""Which tensors of a graph are one replica's own, and which are equal on all? Graphs keep what was said of theirs."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

OWN = "tfscale_own_rows"
EQUAL = "tfscale_equal_on_all_replicas"


def mark_own(values: Any) -> None:
    """Says that these tensors, of the rows of one replica, are others on another one. Eager ones are passed over."""
    _mark(values, OWN)


def mark_equal(values: Any) -> None:
    """Says that these tensors are equal on all replicas, whatever they were made of."""
    _mark(values, EQUAL)


def marked(graph: Any, name: str) -> set[int]:
    """Identities of the tensors of which a graph was told this, `OWN` or `EQUAL`."""
    return set(map(id, graph.get_collection(name)))


def _mark(values: Any, name: str) -> None:
    for leaf in tf.nest.flatten(values, expand_composites=True):
        if tf.is_symbolic_tensor(leaf):
            leaf.graph.add_to_collection(name, leaf)

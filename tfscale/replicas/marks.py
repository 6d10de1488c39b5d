"""What was a graph told of its tensors: which are one replica's own, equal on all, noise, made good?"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

OWN = "tfscale_own_rows"
EQUAL = "tfscale_equal_on_all_replicas"
MADE_GOOD = "tfscale_made_good"
NOISE = "tfscale_noise_of_one_replica"
PART_OF_SUM = "tfscale_part_of_sum"
MEAN_OF_ROWS = "tfscale_mean_of_own_rows"
ALIKE_ON_ALL = "tfscale_alike_on_all_replicas"
PART_BESIDE_OTHERS = "tfscale_part_of_sum_beside_others"
SEED_OF_REPLICA = "tfscale_seed_of_replica"
SEED_OF_ALL = "tfscale_seed_of_all"
WEIGHTED_SLOPE = "tfscale_slope_with_weight"
_INSIDE = "tfscale_inside_of_function"


def mark_own(values: Any) -> None:
    """Says that these tensors, of the rows of one replica, are others on another one. Eager ones are passed over."""
    _mark(values, OWN)


def mark_equal(values: Any) -> None:
    """Says that these tensors are equal on all replicas, whatever they were made of."""
    _mark(values, EQUAL)


def mark_made_good(values: Any) -> None:
    """Says that it is made good that a replica divides by these sums over its own rows."""
    _mark(values, MADE_GOOD)


def mark_noise(values: Any) -> None:
    """Says that these tensors, which a replica draws by itself, are added to its gradients."""
    _mark(values, NOISE)


def mark_number(number: Any, name: str) -> None:
    """Says what a number of one replica is: `PART_OF_SUM`, `MEAN_OF_ROWS`, `ALIKE_ON_ALL` or `PART_BESIDE_OTHERS`."""
    _mark(number, name)


def mark_seed(seed: Any, *, is_own: bool) -> None:
    """Says that a seed is one of this replica's own, or the same on all."""
    _mark(seed, SEED_OF_REPLICA if is_own else SEED_OF_ALL)


def mark_weighted_slope(slope: Any) -> None:
    """Says that a slope of a loss has been multiplied by the weight of its replica."""
    _mark(slope, WEIGHTED_SLOPE)


def mark_inside(results: Any, inside: Any) -> None:
    """Says what the tensors that a function has returned are in the function's own graph.

    Args:
        results: Nested structure of tensors.
        inside: The same, of that graph.
    """
    pairs = (tf.nest.flatten(each, expand_composites=True) for each in (results, inside))
    for leaf, own in zip(*pairs, strict=True):
        if tf.is_symbolic_tensor(leaf) and leaf is not own:
            leaf.graph.add_to_collection(_INSIDE, (leaf, own))


def insides(graph: Any) -> dict[int, tf.Tensor]:
    """By their identities, tensors of a graph that a function has returned: what they are in the function's graph."""
    return {id(leaf): own for leaf, own in graph.get_collection(_INSIDE)}


def marked(graph: Any, name: str) -> set[int]:
    """Identities of the tensors of which a graph was told this, such as `OWN`."""
    return set(map(id, graph.get_collection(name)))


def _mark(values: Any, name: str) -> None:
    for leaf in tf.nest.flatten(values, expand_composites=True):
        if tf.is_symbolic_tensor(leaf):
            leaf.graph.add_to_collection(name, leaf)

"""Which replica's weights are unlike those of the others, by how much, and how much is tolerated?"""

from __future__ import annotations

import collections
from typing import NamedTuple

import keras

from tfscale.replicas.owners import Fact, PreparedModel
from tfscale.replicas.replica_batch import local_replicas
from tfscale.training.step.checksums import largest_differences

# Above what processors of two kinds, or sparse gradients on GPUs, leave in an epoch.
TOLERANCE = 1e-2
# Of the last `fit`.
CHOSEN_TOLERANCE = Fact[float](PreparedModel, "tolerated drift")
_SHOWN = 3


def tolerance_of(model: keras.Model) -> float:
    """The difference up to which the weights of workers may be apart, by the last `fit` of `model`."""
    chosen = CHOSEN_TOLERANCE.of(model)
    return TOLERANCE if chosen is None else chosen


class Drift(NamedTuple):
    """What is known of replicas that differ."""

    largest: float
    """The largest difference, relative to the largest value of its weight."""
    said: str
    """Which replica differs from which, and in what."""


def find_drift(model: keras.Model, checksums: list[int]) -> Drift | None:
    """Compares each weight of replicas that differ; to be called by every worker. None where all are equal.

    Args:
        model: Prepared.
        checksums: Of its weights, by replica.
    """
    if len(set(checksums)) == 1:
        return None
    # The first among equally frequent ones.
    [(usual, _)] = collections.Counter(checksums).most_common(1)
    reference = checksums.index(usual)
    differences = largest_differences(model.distribute_strategy, model.weights, reference)
    odd = [replica for replica, found in enumerate(checksums) if found != usual]
    verb = "differs" if len(odd) == 1 else "differ"
    apart = "; ".join(_describe(model, differences[replica]) for replica in odd[:_SHOWN])
    said = f"{_name(model, odd)} {verb} from {_name(model, [reference])}: {apart}"
    return Drift(max(map(max, differences)), said)


def _describe(model: keras.Model, differences: list[float]) -> str:
    by_path = dict(zip((weight.path for weight in model.weights), differences, strict=True))
    worst = sorted((path for path, found in by_path.items() if found), key=lambda path: -by_path[path])
    if not worst:
        return "bits that make no difference in value"
    more = f" and {len(worst) - _SHOWN} more weights" if len(worst) > _SHOWN else ""
    return ", ".join(f"{path} by {by_path[path]:.2g} of its largest value" for path in worst[:_SHOWN]) + more


def _name(model: keras.Model, replicas: list[int]) -> str:
    here = local_replicas(model.distribute_strategy)
    shown = ", ".join(f"replica {replica} (worker {replica // here.here})" for replica in replicas[:_SHOWN])
    return shown + (f" and {len(replicas) - _SHOWN} more" if len(replicas) > _SHOWN else "")

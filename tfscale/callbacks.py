"""Callbacks for `fit`; `DataParallel.callbacks` returns the sensible set of them."""

from tfscale.training.callbacks.replica_scaling import ReplicaScaling
from tfscale.training.callbacks.scaling_report import ScalingReport

__all__ = ["ReplicaScaling", "ScalingReport"]

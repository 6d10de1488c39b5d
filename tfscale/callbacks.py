"""Callbacks for `fit`; `DataParallel.callbacks` returns the sensible set of them."""

from tfscale.recovery.callback import Recovery
from tfscale.recovery.chief_only import ChiefOnly
from tfscale.rederive.replica_scaling import ReplicaScaling
from tfscale.training.callbacks.drift_watch import DriftWatch
from tfscale.training.callbacks.noise_scale import NoiseScale
from tfscale.training.callbacks.non_finite_watch import NonFiniteWatch
from tfscale.training.callbacks.scaling_report import ScalingReport
from tfscale.training.callbacks.stall_watch import StallWatch

__all__ = [
    "ChiefOnly",
    "DriftWatch",
    "NoiseScale",
    "NonFiniteWatch",
    "Recovery",
    "ReplicaScaling",
    "ScalingReport",
    "StallWatch",
]

"""Train one Keras model on N replicas, with the result of one.

Public names are resolved on first use: `import tfscale` loads neither TensorFlow nor Keras, so a
script can read its cluster, and a command line can print its help, without paying for them or
touching a GPU.

Example:
    >>> import sys
    >>> import tfscale
    >>> tfscale.resolve_cluster({}).num_workers
    1
    >>> "tensorflow" in sys.modules
    False
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfscale import callbacks as callbacks
    from tfscale import flags as flags
    from tfscale import loops as loops
    from tfscale import ray as ray
    from tfscale import study as study
    from tfscale.cluster import ClusterSpec, resolve_cluster
    from tfscale.data.files import RecordFiles
    from tfscale.data_parallel import DataParallel
    from tfscale.errors import (
        BatchError,
        CallbackError,
        ClusterError,
        CommunicationError,
        DataError,
        DeviceError,
        DriftError,
        LaunchError,
        MeasureError,
        ModelError,
        NonFiniteError,
        ParityError,
        RecoveryError,
        ReportError,
        ScalingError,
        ScriptError,
        StudyError,
        TfscaleError,
        VersionError,
    )
    from tfscale.exact.gather import gather_rows
    from tfscale.exact.terms import sum_over_examples
    from tfscale.gradients.adascale import AdaScaleSGD
    from tfscale.gradients.compression.error_feedback import ErrorFeedback
    from tfscale.gradients.compression.power_sgd import PowerSGD
    from tfscale.gradients.compression.protocol import Compression, Reduction
    from tfscale.gradients.network import Network
    from tfscale.gradients.sums import sum_gradients
    from tfscale.parity.bitwise import verify_bitwise
    from tfscale.parity.verification import verify
    from tfscale.rederive.schedules import ReplicaSchedule, StepDecay
    from tfscale.scaling.batch_plan import BatchPlan
    from tfscale.scaling.hyperparameters import scale_hyperparameters
    from tfscale.scaling.recipe import Recipe
    from tfscale.scaling.rules import AdaScaleRule, LinearRule, NoRule, ScalingRule, SqrtRule
    from tfscale.sweeps.futures import sweep
    from tfscale.training.model import prepare
    from tfscale.training.strategy import make_strategy, simulate_replicas

    __version__: str
else:
    # Not for type checkers: one that sees it takes every name for a public one.
    def __getattr__(name: str) -> Any:
        if name == "__version__":
            # Reading the installed metadata costs more than the rest of this import.
            value: Any = importlib.import_module("importlib.metadata").version("tfscale")
        elif name in _MODULES:
            value = importlib.import_module(f"tfscale.{name}")
        elif name in _HOMES:
            value = getattr(importlib.import_module(_HOMES[name]), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


__all__ = [
    "AdaScaleRule",
    "AdaScaleSGD",
    "BatchError",
    "BatchPlan",
    "CallbackError",
    "ClusterError",
    "ClusterSpec",
    "CommunicationError",
    "Compression",
    "DataError",
    "DataParallel",
    "DeviceError",
    "DriftError",
    "ErrorFeedback",
    "LaunchError",
    "LinearRule",
    "MeasureError",
    "ModelError",
    "Network",
    "NoRule",
    "NonFiniteError",
    "ParityError",
    "PowerSGD",
    "Recipe",
    "RecordFiles",
    "RecoveryError",
    "Reduction",
    "ReplicaSchedule",
    "ReportError",
    "ScalingError",
    "ScalingRule",
    "ScriptError",
    "SqrtRule",
    "StepDecay",
    "StudyError",
    "TfscaleError",
    "VersionError",
    "__version__",
    "gather_rows",
    "make_strategy",
    "prepare",
    "resolve_cluster",
    "scale_hyperparameters",
    "simulate_replicas",
    "sum_gradients",
    "sum_over_examples",
    "sweep",
    "verify",
    "verify_bitwise",
]

# Where each public name lives. No module bears the name of a public function: importing a submodule
# binds its name here, and `tfscale.verify` has to stay the function.
_HOMES = {
    "AdaScaleRule": "tfscale.scaling.rules",
    "AdaScaleSGD": "tfscale.gradients.adascale",
    "BatchError": "tfscale.errors",
    "BatchPlan": "tfscale.scaling.batch_plan",
    "CallbackError": "tfscale.errors",
    "ClusterError": "tfscale.errors",
    "ClusterSpec": "tfscale.cluster",
    "CommunicationError": "tfscale.errors",
    "Compression": "tfscale.gradients.compression.protocol",
    "DataError": "tfscale.errors",
    "DataParallel": "tfscale.data_parallel",
    "DeviceError": "tfscale.errors",
    "DriftError": "tfscale.errors",
    "ErrorFeedback": "tfscale.gradients.compression.error_feedback",
    "LaunchError": "tfscale.errors",
    "LinearRule": "tfscale.scaling.rules",
    "MeasureError": "tfscale.errors",
    "ModelError": "tfscale.errors",
    "Network": "tfscale.gradients.network",
    "NoRule": "tfscale.scaling.rules",
    "NonFiniteError": "tfscale.errors",
    "ParityError": "tfscale.errors",
    "PowerSGD": "tfscale.gradients.compression.power_sgd",
    "Recipe": "tfscale.scaling.recipe",
    "RecordFiles": "tfscale.data.files",
    "RecoveryError": "tfscale.errors",
    "ReportError": "tfscale.errors",
    "Reduction": "tfscale.gradients.compression.protocol",
    "ReplicaSchedule": "tfscale.rederive.schedules",
    "ScalingError": "tfscale.errors",
    "ScalingRule": "tfscale.scaling.rules",
    "SqrtRule": "tfscale.scaling.rules",
    "StepDecay": "tfscale.rederive.schedules",
    "ScriptError": "tfscale.errors",
    "StudyError": "tfscale.errors",
    "TfscaleError": "tfscale.errors",
    "VersionError": "tfscale.errors",
    "gather_rows": "tfscale.exact.gather",
    "make_strategy": "tfscale.training.strategy",
    "prepare": "tfscale.training.model",
    "resolve_cluster": "tfscale.cluster",
    "scale_hyperparameters": "tfscale.scaling.hyperparameters",
    "simulate_replicas": "tfscale.training.strategy",
    "sum_gradients": "tfscale.gradients.sums",
    "sum_over_examples": "tfscale.exact.terms",
    "sweep": "tfscale.sweeps.futures",
    "verify": "tfscale.parity.verification",
    "verify_bitwise": "tfscale.parity.bitwise",
}

# Public modules, loaded as attributes of this one.
_MODULES = ("callbacks", "flags", "loops", "ray", "study")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})

"""Is the code behind the unpromised names that of the releases that tfscale was tried on?

A name may stay, with what it takes, and no longer be called where it was. So the functions of Keras and TensorFlow that
define or call the names are compared by what they say.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tfscale.framework.source import content
from tfscale.framework.versions import check_versions, normal_form

_log = logging.getLogger(__name__)
RELEASES = Path(__file__).with_name("releases.json")
"""Contents of the releases that `make canary`, at least, was green on."""

WATCHED: dict[str, dict[str, tuple[str, ...]]] = {
    "keras": {
        "optimizers.base_optimizer:BaseOptimizer": (
            "__init__",
            "_clip_gradients",
            "_overwrite_model_variables_with_average_value",
            "_update_model_variables_moving_average",
            "apply",
            "apply_gradients",
            "build",
            "iterations",
        ),
        "optimizers.loss_scale_optimizer:LossScaleOptimizer": ("apply", "build", "scale_loss"),
        "backend.tensorflow.optimizer:TFOptimizer": (
            "_all_reduce_sum_gradients",
            "_backend_update_step",
            "_distributed_tf_update_step",
            "_overwrite_model_variables_with_average_value",
        ),
        "losses.loss": (
            "Loss.__call__",
            "apply_mask",
            "reduce_values",
            "reduce_weighted_values",
            "scale_loss_for_distribution",
        ),
        "losses.losses:LossFunctionWrapper": ("__init__", "call"),
        "activations.activations": ("sigmoid", "softmax"),
        "backend.tensorflow.nn": ("_get_logits",),
        "metrics.reduction_metrics:MeanMetricWrapper": ("__init__", "update_state"),
        "metrics.metric:Metric": ("__init__", "add_variable", "reset_state"),
        "trainers.compile_utils:CompileLoss": ("__init__", "build", "call", "metrics"),
        "trainers.compile_utils:CompileMetrics": ("build", "metrics"),
        "trainers.trainer:Trainer": (
            "__init__",
            "_compute_loss",
            "_get_metrics_result_or_logs",
            "_resolve_auto_jit_compile",
            "_symbolic_build",
            "compile",
            "compute_loss",
            "compute_metrics",
            "get_metrics_result",
            "metrics",
        ),
        "trainers.epoch_iterator:EpochIterator": (
            "__init__",
            "__next__",
            "_enumerate_iterator",
            "catch_stop_iteration",
            "num_batches",
            "reset",
        ),
        "backend.tensorflow.trainer": (
            "TFEpochIterator",
            "TensorFlowTrainer._aggregate_additional_loss",
            "TensorFlowTrainer._maybe_symbolic_build",
            "TensorFlowTrainer.evaluate",
            "TensorFlowTrainer.fit",
            "TensorFlowTrainer.make_predict_function",
            "TensorFlowTrainer.make_test_function",
            "TensorFlowTrainer.make_train_function",
            "TensorFlowTrainer.predict",
            "TensorFlowTrainer.test_on_batch",
            "TensorFlowTrainer.test_step",
            "TensorFlowTrainer.train_on_batch",
            "TensorFlowTrainer.train_step",
        ),
        "backend.tensorflow.random": (
            "beta",
            "binomial",
            "categorical",
            "dropout",
            "gamma",
            "normal",
            "randint",
            "shuffle",
            "truncated_normal",
            "uniform",
        ),
        "backend.tensorflow.core:Variable": ("_direct_assign", "_initialize"),
        "backend.common.variables:Variable": ("assign", "value"),
        "layers.layer:Layer": ("_flatten_layers", "_get_regularization_losses", "add_loss", "losses"),
        "layers.normalization.batch_normalization:BatchNormalization": ("_moments", "build", "call"),
        "layers.preprocessing.image_preprocessing.equalization:Equalization": (
            "_custom_histogram_fixed_width",
            "_equalize_channel",
        ),
        "layers.preprocessing.mel_spectrogram:MelSpectrogram": ("_dbscale", "call"),
        "random.seed_generator": ("SeedGenerator", "draw_seed", "global_seed_generator"),
        "callbacks.backup_and_restore:BackupAndRestore": ("on_train_begin",),
        "callbacks.tensorboard:TensorBoard": ("_init_profile_batch", "on_train_batch_begin", "on_train_batch_end"),
    },
    "tensorflow": {
        "distribute.mirrored_strategy:MirroredExtended": (
            "_batch_reduce_to",
            "_call_for_each_replica",
            "_create_variable",
            "_reduce_to",
            "_replica_ctx_all_reduce",
            "_replica_ctx_update",
            "_update",
            "_use_merge_call",
        ),
        "distribute.mirrored_run": ("_MirroredReplicaThread", "_call_for_each_replica"),
        "distribute.collective_all_reduce_strategy:CollectiveAllReduceExtended": (
            "_get_variable_creator_initial_value",
            "_initialize_multi_worker",
            "_reduce_to",
            "_use_merge_call",
        ),
        "distribute.distribute_lib": (
            "ReplicaContext._update",
            "ReplicaContextBase.all_reduce",
            "ReplicaContextBase.merge_call",
            "StrategyBase.run",
            "StrategyExtendedV2._replica_ctx_all_reduce",
            "StrategyExtendedV2.update",
        ),
        "distribute.cross_device_ops:CollectiveAllReduce": ("__init__", "_all_reduce"),
        "distribute.cross_device_utils:CollectiveReplicaLauncher": (
            "__init__",
            "_all_gather",
            "_next_instance_key",
            "all_gather",
            "all_reduce",
            "batch_all_reduce",
        ),
        "distribute.cross_device_utils:CollectiveKeys": ("_get_new_group_key", "get_instance_key"),
        "distribute.values": (
            "DistributedVariable._get",
            "DistributedVariable._get_replica",
            "DistributedVariable.handle",
            "MirroredVariable._dense_var_to_tensor",
            "MirroredVariable._update_replica",
            "SyncOnReadVariable._dense_var_to_tensor",
        ),
        "eager.context:Context": ("_set_device", "abort_collective_ops", "add_function_def", "report_error_to_cluster"),
        "eager.lift_to_graph": ("lift_to_graph",),
        "framework.func_graph:FuncGraph": ("capture_call_time_value",),
        "framework.auto_control_deps": (
            "AutomaticControlDependencies.__exit__",
            "AutomaticControlDependencies.run_independently",
            "op_is_stateful",
        ),
    },
}
"""By package: modules and classes, and what of them is compared. What a release does not have is compared as absent."""

_BELOW = {"keras": "keras.src", "tensorflow": "tensorflow.python"}
_NAMES = {"keras": "Keras", "tensorflow": "TensorFlow"}


class Canary(NamedTuple):
    """What is known of the code of one package."""

    package: str
    release: str
    is_known: bool
    """Whether tfscale was tried on this release."""
    like: str
    """One on which it was, and whose code is the same; empty when there is none."""
    changed: tuple[str, ...]
    """What is other than in the newest of those, where none is the same."""

    def describe(self) -> str:
        """One line; empty for a known release with its own code."""
        release = f"{_NAMES[self.package]} {self.release}"
        if self.like:
            what = f"nothing that tfscale stands on differs from {self.like}"
            return "" if self.is_known else f"{release} is a release that tfscale was not tried on; {what}"
        short = [name.partition(":")[2] for name in self.changed]
        shown = ", ".join(short[:3]) + (f" and {len(self.changed) - 3} more" if len(self.changed) > 3 else "")
        return (
            f"{release} has other code than the releases that tfscale was tried on, where tfscale stands on it: "
            f"{shown}. Before you trust it, compare with one device: tfscale verify train.py:build train.py:data"
        )


def names(package: str) -> list[str]:
    """The functions and classes of a package that are compared.

    Example:
        >>> names("keras")[0]
        'keras.src.optimizers.base_optimizer:BaseOptimizer.__init__'
    """
    found = []
    for place, members in WATCHED[package].items():
        module, _, kind = place.partition(":")
        found += [f"{_BELOW[package]}.{module}:{kind}{'.' if kind else ''}{each}" for each in members]
    return found


def contents(package: str, root: Path | None = None) -> dict[str, str | None]:
    """What each of them says, as `source.content`."""
    return {name: content(name, root) for name in names(package)}


def releases() -> dict[str, dict[str, dict[str, str | None]]]:
    """Contents by package and release: those that tfscale was tried on, oldest first."""
    loaded: dict[str, dict[str, dict[str, str | None]]] = json.loads(RELEASES.read_text())
    return loaded


def judge(
    package: str,
    release: str,
    found: Mapping[str, str | None],
    known: Mapping[str, Mapping[str, str | None]],
) -> Canary:
    """Compares what an installed package says with what known releases say.

    Args:
        package: `"keras"` or `"tensorflow"`.
        release: That is installed.
        found: Its contents.
        known: Contents by release, oldest first. Of one that is installed, only its own count.

    Example:
        >>> known = {"3.14.1": {"f": "1"}, "3.15.1": {"f": "2"}}
        >>> judge("keras", "3.16.0", {"f": "2"}, known).describe()
        'Keras 3.16.0 is a release that tfscale was not tried on; nothing that tfscale stands on differs from 3.15.1'
        >>> judge("keras", "3.15.1", {"f": "1"}, known).changed
        ('f',)
    """
    compared = {release: known[release]} if release in known else known
    alike = [each for each in compared if dict(compared[each]) == dict(found)]
    newest = compared[list(compared)[-1]]
    changed = () if alike else tuple(sorted(name for name in found if found[name] != newest.get(name)))
    return Canary(package, release, release in known, alike[-1] if alike else "", changed)


def judge_installed(package: str, release: str) -> Canary:
    """`judge` of the package that would be imported. Reads some twenty of its files.

    TensorFlow says "2.22.0-rc0" of itself where its metadata, by which releases are known, say "2.22.0rc0".
    """
    return judge(package, normal_form(release), contents(package), releases()[package])


def check_releases(keras_version: str, tensorflow_version: str, backend: str) -> None:
    """Refuses releases that are known not to do, and says what is known of others, once in a process.

    Args:
        keras_version: As `keras.__version__`.
        tensorflow_version: As `tensorflow.__version__`.
        backend: As `keras.backend.backend()`.

    Raises:
        VersionError: As `versions.check_versions`.
    """
    check_versions(keras_version, tensorflow_version, backend)
    _tell("keras", normal_form(keras_version))
    _tell("tensorflow", normal_form(tensorflow_version))


@functools.cache
def _tell(package: str, release: str) -> None:
    if release in releases()[package]:
        return
    canary = judge_installed(package, release)
    _log.log(logging.INFO if canary.like else logging.WARNING, "%s", canary.describe())

"""Who starts the workers of a job on Ray?"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

import psutil
import ray
import ray.train
from ray.train.backend import Backend, BackendConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from tfscale.errors import LaunchError
from tfscale.launch.engine_group import WorkerGroup, hear_last_words, join_workers

_log = logging.getLogger(__name__)
_SHOWN_RANKS = 8


@dataclasses.dataclass
class Config(BackendConfig):
    """Makes one job of Ray's workers; `Trainer` has it by itself.

    Each worker gets an address of its host, `TF_CONFIG`, the secret of the job and, without GPUs, as many threads as
    Ray gives it CPUs. Ray's `TensorflowConfig` asks for Keras 2 besides, and loads TensorFlow where it is imported.

    Example:
        >>> import tfscale.ray
        >>> tfscale.ray.Config().backend_cls.__mro__[1].__module__
        'ray.train.backend'
    """

    @property
    def backend_cls(self) -> type[Backend]:
        """What is done with a group of workers."""
        return _Backend


class _Backend(Backend):
    def on_start(self, worker_group: WorkerGroup, backend_config: Config) -> None:
        """Is called by Ray when all workers are there, before any of them trains."""
        del backend_config
        host_of = ray.util.get_node_ip_address
        join_workers(worker_group, "Ray", host_of=host_of, cores_of=_own_cores, wait=ray.get)

    def on_shutdown(self, worker_group: WorkerGroup, backend_config: Config) -> None:
        """Is called by Ray before it ends the workers; of one that has died it knows no more than that it has."""
        del backend_config
        for text, ranks in hear_last_words(worker_group, speak=_speak, wait_some=_wait_some).items():
            who = ", ".join(map(str, ranks[:_SHOWN_RANKS])) + (", ..." if len(ranks) > _SHOWN_RANKS else "")
            _log.error("%d worker(s) (%s) say: %s", len(ranks), who, text)


def _wait_some(started: Sequence[Any], timeout_s: float) -> dict[int, Any]:
    ready, _ = ray.wait(list(started), num_returns=len(started), timeout=timeout_s) if started else ([], [])
    found = {}
    for place, each in enumerate(started):
        if each in ready:
            with contextlib.suppress(ray.exceptions.RayError):
                found[place] = ray.get(each)
    return found


def _speak(timeout_s: float) -> str | None:
    if "tensorflow" not in sys.modules:
        # It has not come so far that it misses anybody.
        return None
    from tfscale.replicas.failures import wait_for_last_words

    return wait_for_last_words(timeout_s)


def _own_cores() -> int | None:
    resources = ray.get_runtime_context().get_assigned_resources()
    # Beside a GPU one CPU is what Ray's scheduler counts, and no limit to what prepares its data.
    return None if resources.get("GPU") else max(1, int(resources.get("CPU", 1)))


class Trainer(DataParallelTrainer):
    """Ray's `DataParallelTrainer` for functions that train with tfscale; its arguments are Ray's.

    With `ScalingConfig(num_workers=(1, 8))` hosts may come and go: Ray ends the workers and starts others, `Recovery`
    goes on where they were, and with `DataParallel(global_batch=...)` the result is that of a run that was never
    disturbed. How often Ray starts again after a failure is `RunConfig(failure_config=ray.train.FailureConfig(3))`.

    Args:
        train_loop_per_worker: Run by each worker; imports Keras and TensorFlow itself.
        backend_config: By default `Config()`.
        **arguments: See `ray.train.data_parallel_trainer.DataParallelTrainer`.

    Raises:
        LaunchError: In `fit`, when the Ray that this process has started has too few CPUs or GPUs, and none can come.

    Example:
        >>> import ray.train, tfscale.ray
        >>> trainer = tfscale.ray.Trainer(print, scaling_config=ray.train.ScalingConfig(num_workers=2))
        >>> trainer.scaling_config.num_workers
        2

    Reference:
        https://docs.ray.io/en/latest/train/train.html
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        backend_config: BackendConfig | None = None,
        **arguments: Any,
    ):
        super().__init__(train_loop_per_worker, backend_config=backend_config or Config(), **arguments)

    def fit(self) -> ray.train.Result:
        """Runs the function on all workers; see Ray.

        Returns:
            Ray's result.
        """
        if ray.is_initialized() and _is_rays_parent():
            check_resources(self.scaling_config, ray.cluster_resources())
        return super().fit()


def check_resources(scaling_config: Any, there: dict[str, float]) -> None:
    """Refuses a job for which there is no room: Ray would wait for ever.

    Args:
        scaling_config: Ray's.
        there: All resources of the cluster, by name.

    Raises:
        LaunchError: When there is too little.
    """
    least = scaling_config.min_workers
    if not least:
        return
    for name, most in scaling_config.total_resources.items():
        each = most / scaling_config.max_workers
        if each * least > there.get(name, 0):
            raise LaunchError(
                f"Ray must have room for {least} worker(s), {each:g} {name} each.\n"
                f"Received: a Ray of this process with {there.get(name, 0):g} {name} in all, to which nothing is "
                f"added. Ask for fewer workers, for less in `ScalingConfig(resources_per_worker=...)`, or join a "
                f"cluster: `ray.init(address='auto')`."
            )


def _is_rays_parent() -> bool:
    """Whether Ray was started by this process: such a one has no autoscaler, and ends with it."""
    for child in psutil.Process().children():
        # It may have ended meanwhile.
        with contextlib.suppress(psutil.Error):
            if child.name().startswith("gcs_server"):
                return True
    return False

"""What does each worker of this host run, with which environment, on which cores?"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfscale.cluster import ClusterSpec
from tfscale.cluster.own_gpus import VISIBLE
from tfscale.launch.cores import count_threads, divide_cores
from tfscale.launch.gpus import divide_gpus


@dataclass(frozen=True)
class Worker:
    """One worker process.

    Args:
        spec: The job, and this worker's rank in it.
        argv: Program and arguments.
        settings: The variables that are added to the environment.
        cores: The cores it runs on; None leaves that to the system.
    """

    spec: ClusterSpec
    argv: tuple[str, ...]
    settings: Mapping[str, str]
    cores: tuple[int, ...] | None

    @property
    def rank(self) -> int:
        """The rank of the worker."""
        return self.spec.rank

    @property
    def address(self) -> str:
        """Where the worker listens."""
        return self.spec.workers[self.spec.rank]


@dataclass(frozen=True)
class Resources:
    """What the workers of this host divide.

    Args:
        gpus: As `CUDA_VISIBLE_DEVICES` names them.
        cores: Their numbers.
        cores_per_worker: Cores for each; None divides all.
        replicas_per_worker: GPUs for each; None divides all.
    """

    gpus: tuple[str, ...]
    cores: tuple[int, ...]
    cores_per_worker: int | None = None
    replicas_per_worker: int | None = None


def plan_workers(
    addresses: Sequence[str],
    ranks: Sequence[int],
    argv: Sequence[str],
    environ: Mapping[str, str],
    resources: Resources,
) -> list[Worker]:
    """Returns the workers of this host.

    Args:
        addresses: One `host:port` per worker of the job.
        ranks: The workers that share this host.
        argv: What each of them runs.
        environ: The environment that they inherit; what it sets is left alone, except for the cluster and the GPUs.
        resources: What they divide.

    Raises:
        ClusterError: An address is malformed, or occurs twice.
        LaunchError: The GPUs or cores do not go round.
    """
    gpus = divide_gpus(resources.gpus, len(ranks), resources.replicas_per_worker)
    # One worker that has the host for itself runs as it would without a launcher.
    alone = len(ranks) == 1 and resources.cores_per_worker is None
    cores = divide_cores(resources.cores, len(ranks), resources.cores_per_worker)
    workers = []
    for rank, own_gpus, own_cores in zip(ranks, gpus, cores, strict=True):
        spec = ClusterSpec(tuple(addresses), rank, source="tfscale launch")
        settings = {"TF_CONFIG": spec.to_tf_config()}
        if "PYTHONUNBUFFERED" not in environ:
            # Else lines would arrive in blocks of 8 KB, and the last ones of a killed worker not at all.
            settings["PYTHONUNBUFFERED"] = "1"
        if own_gpus is not None:
            settings[VISIBLE] = own_gpus
        if not alone:
            shared = len(ranks) > len(resources.cores)
            settings |= count_threads(environ, 1 if shared else len(own_cores))
        workers.append(Worker(spec, tuple(argv), settings, None if alone else own_cores))
    return workers


def describe(worker: Worker) -> str:
    """Returns a worker's command as a shell takes it, under a comment that names it."""
    cores = "" if worker.cores is None else f", core(s) {','.join(map(str, worker.cores))}"
    settings = [f"{name}={shlex.quote(value)}" for name, value in worker.settings.items()]
    return f"# worker {worker.rank}, {worker.address}{cores}\n{' '.join([*settings, shlex.join(worker.argv)])}\n"

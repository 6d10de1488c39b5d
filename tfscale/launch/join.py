"""Is this process a worker already, that a manager has started?"""

import argparse
from collections.abc import Mapping

from tfscale.cluster import ClusterSpec, resolve_cluster
from tfscale.cluster.slurm import in_step
from tfscale.errors import LaunchError

# The flags of a launcher that starts workers, with their values when they are not given.
_OF_STARTING = {
    "hosts": None,
    "rank": None,
    "replicas_per_worker": None,
    "cores_per_worker": None,
    "max_restarts": 0,
    "log_dir": None,
    "isolate_network": False,
}


def find_job(environ: Mapping[str, str]) -> ClusterSpec | None:
    """Returns the job that this process is a worker of; None where workers are to be started.

    That is a job in `TF_CONFIG`, or one of several workers that `srun`, `mpirun` or Kubernetes started.

    Raises:
        ClusterError: The environment describes a job by halves.
    """
    if not in_step(environ):
        # In a batch script or a shell of `salloc` this launcher is what starts the workers.
        environ = {name: value for name, value in environ.items() if not name.startswith("SLURM_")}
    spec = resolve_cluster(environ)
    return spec if spec.num_workers > 1 or spec.source == "TF_CONFIG" else None


def check_flags(args: argparse.Namespace, spec: ClusterSpec) -> None:
    """Refuses flags that have no meaning for a worker that a manager has started.

    Raises:
        LaunchError: One is given, or the number of workers is not the job's.
    """
    given = [name for name, default in _OF_STARTING.items() if getattr(args, name) != default]
    if args.workers not in (None, spec.num_workers):
        given.insert(0, "workers")
    if given:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise LaunchError(
            f"A worker that was started already joins its job, the {spec.num_workers} worker(s) from {spec.source}.\n"
            f"Received: {flags}. Leave them out to join, or unset {spec.source}'s variables to start workers here."
        )

"""Is this process a worker already, that a manager has started?"""

import argparse
from collections.abc import Mapping

from tfscale.cluster import ClusterSpec, resolve_cluster
from tfscale.cluster.resolve import read_started
from tfscale.cluster.slurm import check_allocation, in_step
from tfscale.cluster.variables import ALONE
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


def find_job(environ: Mapping[str, str], *, has_hosts: bool) -> ClusterSpec | None:
    """Returns the job that this process is a worker of; None where workers are to be started.

    That is a job in `TF_CONFIG`, one of several workers that `srun`, `mpirun` or Kubernetes started, or one of the
    hosts of SkyPilot, dstack or SageMaker.

    Args:
        environ: The environment variables, by name.
        has_hosts: Whether the launcher is told all hosts of the job: then what lends hosts says nothing more.

    Raises:
        ClusterError: The environment describes a job by halves, or tells of several hosts or processes and not who
            they are.
    """
    own = environ
    if not in_step(environ):
        # In a batch script or a shell of `salloc` this launcher is what starts the workers.
        own = {name: value for name, value in environ.items() if not name.startswith("SLURM_")}
    spec = read_started(own) if has_hosts and environ.get(ALONE) != "1" else resolve_cluster(own)
    if spec is not None and (spec.num_workers > 1 or spec.source == "TF_CONFIG"):
        return spec
    if not has_hosts and environ.get(ALONE) != "1":
        check_allocation(environ)
    return None


def check_flags(args: argparse.Namespace, spec: ClusterSpec) -> None:
    """Refuses flags that have no meaning for a worker that a manager has started.

    Raises:
        LaunchError: One is given, or the number of workers is not the job's.
    """
    given = [name for name, default in _OF_STARTING.items() if getattr(args, name) != default]
    if args.json and not args.dry_run:
        # The script takes this process's place: nobody is left to tell how it ended.
        given.append("json")
    if args.workers not in (None, spec.num_workers):
        given.insert(0, "workers")
    if given:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise LaunchError(
            f"A worker that was started already joins its job, the {spec.num_workers} worker(s) from {spec.source}.\n"
            f"Received: {flags}. Leave them out to join, or unset {spec.source}'s variables to start workers here."
        )

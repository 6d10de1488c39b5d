"""This machine as a job of one worker, when no other source is set and no sign says that there are others."""

from collections.abc import Mapping

from tfscale.cluster import alone, signs
from tfscale.cluster.addresses import HOSTS
from tfscale.cluster.kubernetes import NUM_WORKERS, SERVICE
from tfscale.cluster.spec import ClusterSpec
from tfscale.errors import ClusterError


def read(environ: Mapping[str, str]) -> ClusterSpec:
    """Returns the job of one worker.

    Raises:
        ClusterError: A variable of ours names workers, but nothing tells which of them this is; or the environment
            tells of several hosts or processes, and not who they are.
    """
    ours = [name for name in (HOSTS, NUM_WORKERS, SERVICE) if name in environ]
    if ours and environ.get(NUM_WORKERS) != "1":
        raise ClusterError(
            f"A job must say which of its workers this is.\n"
            f"Received: {', '.join(f'{name}={environ[name][:200]!r}' for name in ours)}; missing: the rank that Slurm, "
            f"mpirun or an Indexed Job of Kubernetes sets. "
            f"Unset {' and '.join(ours)} to train on this machine alone, or start the workers through one of those."
        )
    signs.check(environ)
    return alone.this_machine()

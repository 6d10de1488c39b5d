"""Which workers are in this job?"""

import os
from collections.abc import Callable, Mapping

from tfscale.cluster import kubernetes, mpi, slurm, tf_config, this_machine
from tfscale.cluster.spec import ClusterSpec

# The first source that is set wins. A source returns None when the environment does not mention it,
# and raises ClusterError when it is set by half: the next one would train another job.
_SOURCES: tuple[Callable[[Mapping[str, str]], ClusterSpec | None], ...] = (
    tf_config.read,
    slurm.read,
    mpi.read_open_mpi,
    mpi.read_pmi,
    kubernetes.read,
    this_machine.read,
)


def resolve_cluster(environ: Mapping[str, str] = os.environ) -> ClusterSpec:
    """Finds the workers of the job that this process belongs to.

    The sources, in order: `TF_CONFIG`; the step of Slurm's `srun`; `mpirun` of Open MPI; `mpiexec` with PMI (MPICH,
    Intel MPI); an Indexed Job of Kubernetes; this machine, as a job of one worker. The first that is set wins, and
    `source` names it. The result depends on `environ` alone, and nothing is written to it.

    Args:
        environ: The environment variables, by name.

    Returns:
        The workers, the rank of this one, and the source that named them.

    Raises:
        ClusterError: A source is set, but incomplete or contradictory.

    Example:
        >>> from tfscale import resolve_cluster
        >>> resolve_cluster({}).source
        'this machine'
        >>> workers = '{"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}'
        >>> task = '{"type": "worker", "index": 1}'
        >>> resolve_cluster({"TF_CONFIG": f'{{"cluster": {workers}, "task": {task}}}'})
        ClusterSpec(workers=('10.0.0.1:2222', '10.0.0.2:2222'), rank=1, source='TF_CONFIG')
        >>> step = {"SLURM_STEP_NODELIST": "n[08-09]", "SLURM_STEP_TASKS_PER_NODE": "2,1", "SLURM_NTASKS": "3"}
        >>> resolve_cluster({**step, "SLURM_PROCID": "2", "TFSCALE_PORT": "2222"})
        ClusterSpec(workers=('n08:2222', 'n08:2223', 'n09:2222'), rank=2, source='Slurm')
    """
    return next(spec for read in _SOURCES if (spec := read(environ)) is not None)

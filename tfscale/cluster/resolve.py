"""Which workers are in this job?"""

import os
from collections.abc import Callable, Mapping

from tfscale.cluster import alone, engines, kubernetes, mpi, slurm, sources, tf_config, this_machine
from tfscale.cluster.spec import ClusterSpec
from tfscale.errors import ClusterError

_Read = Callable[[Mapping[str, str]], ClusterSpec | None]

# The first source that is set wins. A source returns None when the environment does not mention it,
# and raises ClusterError when it is set by half: the next one would train another job.
_STARTED: tuple[tuple[str, _Read], ...] = (
    ("TF_CONFIG", tf_config.read),
    ("a source of another package", sources.read),
    ("Slurm", slurm.read),
    ("Open MPI", mpi.read_open_mpi),
    ("PMI", mpi.read_pmi),
    ("Kubernetes", kubernetes.read),
)
_BUILT_IN: tuple[tuple[str, _Read], ...] = (*_STARTED[2:], ("the table of engines", engines.read))
# One process of these may be one of several after all: a torchrun in a step of one task, SkyPilot's one step per host.
_STEPS = ("Slurm", "Open MPI", "PMI")


def resolve_cluster(environ: Mapping[str, str] = os.environ) -> ClusterSpec:
    """Finds the workers of the job that this process belongs to.

    With `TFSCALE_ALONE=1` that is this process alone. Else the sources, in order: `TF_CONFIG`; sources that other
    packages have added (entry points of the group `tfscale.cluster_sources`); the step of Slurm's `srun`; `mpirun` of
    Open MPI; `mpiexec` with PMI (MPICH, Intel MPI); an Indexed Job of Kubernetes; SkyPilot, dstack, SageMaker and the
    other engines of a table; this machine, as a job of one worker. The first that is set wins, `source` names it, and
    the log says which others were not looked at. The result depends on `environ` alone, but for what other packages
    look at, and nothing is written to it.

    Args:
        environ: The environment variables, by name.

    Returns:
        The workers, the rank of this one, and the source that named them.

    Raises:
        ClusterError: A source is set, but incomplete or contradictory; or there are several processes or hosts (a
            launcher of another framework, an allocation of a batch system), and nothing says who they are.

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
        >>> resolve_cluster({"SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-2"})
        ClusterSpec(workers=('algo-1:2222', 'algo-2:2222'), rank=1, source='SageMaker')
    """
    spec = alone.read(environ)
    if spec is None:
        spec = read_started(environ)
        if spec is None or (spec.num_workers == 1 and spec.source in _STEPS):
            spec = engines.read(environ) or spec
        spec = spec or this_machine.read(environ)
    _tell_ignored(environ, spec)
    return spec


def read_started(environ: Mapping[str, str]) -> ClusterSpec | None:
    """Returns the job in which a manager has started this process as a worker; None where none has.

    Raises:
        ClusterError: A source is set, but incomplete or contradictory.
    """
    return next((spec for _, read in _STARTED if (spec := read(environ)) is not None), None)


def _tell_ignored(environ: Mapping[str, str], chosen: ClusterSpec) -> None:
    """Logs which other engines have set their variables too."""
    for name, read in _BUILT_IN:
        try:
            spec = read(environ)
        except ClusterError:
            said = "by half, or without hosts"
        else:
            if spec is None or spec.source == chosen.source:
                continue
            name = spec.source
            said = f"worker {spec.rank} of {spec.num_workers}"
        # Few have two engines, and a launcher that has none answers sooner without it.
        import logging

        logging.getLogger(__name__).info(
            "this is worker %d of %d, from %s; not looked at: the variables of %s (%s)",
            chosen.rank,
            chosen.num_workers,
            chosen.source,
            name,
            said,
        )

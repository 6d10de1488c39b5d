"""The cluster in the variables that `mpirun` and `mpiexec` give to each process: Open MPI, and PMI as Hydra sets it.

They hold the rank and the number of processes, but no hosts. Those come from `TFSCALE_HOSTS`, unless all
processes are on this machine. Hydra does not even name its job: what its proxy was told does.

Reference:
    https://docs.open-mpi.org/en/main/tuning-apps/environment-var.html
"""

from collections.abc import Mapping

from tfscale.cluster.addresses import HOSTS, add_ports, derive_port, read_first_port, read_hosts
from tfscale.cluster.host_list import MAX_WORKERS
from tfscale.cluster.hydra import find_mpiexec, find_proxy
from tfscale.cluster.spec import ClusterSpec
from tfscale.cluster.variables import WAY_ROUND, read_number, read_rank, require
from tfscale.errors import ClusterError

_OPEN_MPI = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
_PMI = ("PMI_RANK", "PMI_SIZE")
RANKS_AND_SIZES = (_OPEN_MPI, _PMI)

_OPEN_MPI_LOCAL_SIZE = "OMPI_COMM_WORLD_LOCAL_SIZE"
_HYDRA_LOCAL_SIZE = "MPI_LOCALNRANKS"
# Each manager sets all of its own: where one is left, the others were lost on the way.
_OF_OPEN_MPI = (*_OPEN_MPI, _OPEN_MPI_LOCAL_SIZE, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_NODE_RANK")
_OF_PMI = (*_PMI, _HYDRA_LOCAL_SIZE, "MPI_LOCALRANKID")
# What two jobs on one machine have different values of.
_JOBS = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid", "PMI_PORT", "PMI_ID")


def read_open_mpi(environ: Mapping[str, str]) -> ClusterSpec | None:
    """Reads what Open MPI's `mpirun` sets; returns None when it sets nothing.

    Raises:
        ClusterError: Rank or size are missing or wrong, or the hosts are not known.
    """
    if not any(name in environ for name in _OF_OPEN_MPI):
        return None
    return _read(environ, "Open MPI", _OPEN_MPI, _OPEN_MPI_LOCAL_SIZE)


def read_pmi(environ: Mapping[str, str]) -> ClusterSpec | None:
    """Reads what the `mpiexec` of MPICH and Intel MPI sets; returns None when it sets nothing.

    Raises:
        ClusterError: Rank or size are missing or wrong, or the hosts are not known.
    """
    if not any(name in environ for name in _OF_PMI):
        return None
    return _read(environ, "PMI", _PMI, _HYDRA_LOCAL_SIZE)


def _read(environ: Mapping[str, str], source: str, names: tuple[str, str], local: str) -> ClusterSpec:
    left = [name for name in (*_OF_OPEN_MPI, *_OF_PMI) if name in environ]
    way_out = (
        f"Start every worker with `mpirun`, set TF_CONFIG, which is looked at first, or unset {left[0]} to train on "
        f"this machine alone. {WAY_ROUND}"
    )
    rank_name, size_name = require(environ, source, [(name,) for name in names], way_out, left)
    size = read_number(environ, size_name, 1, MAX_WORKERS, source)
    rank = read_rank(environ, rank_name, size, source)
    # Each looks at its own ancestors: where all know a job by a variable, nobody does.
    job = next((environ[name] for name in _JOBS if name in environ), None) or (
        find_mpiexec() if source == "PMI" else None
    )
    if HOSTS in environ:
        workers = read_hosts(environ, size, read_first_port(environ, derive_port(job or "0")))
    elif size == 1 or environ.get(local) == str(size):
        # Each host has a proxy of its own: its number is worth something where there is one host.
        workers = add_ports(["localhost"] * size, read_first_port(environ, derive_port(job or find_proxy() or "0")))
    else:
        raise _unknown_hosts(environ, source, local, size)
    return ClusterSpec(workers=workers, rank=rank, source=source)


def _unknown_hosts(environ: Mapping[str, str], source: str, local: str, size: int) -> ClusterError:
    received = f"{local}={environ[local][:20]!r}" if local in environ else f"no {local}"
    return ClusterError(
        f"The hosts of the {size} workers must be known; {source} does not say them unless all are on this machine.\n"
        f"Received: {received}; missing: {HOSTS}. "
        f"Give every worker {HOSTS}, one host per worker in the order of their ranks: for example "
        f"`mpirun -x {HOSTS}=a,a,b,b ...` or `mpiexec -genv {HOSTS} a,a,b,b ...`. {WAY_ROUND}"
    )

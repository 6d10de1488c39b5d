"""Which `mpiexec` of Hydra (MPICH, Intel MPI) started this process?

Its variables are the same for every job, so that two jobs on one machine would take the same ports. All processes of a
job on one host descend from one proxy. MPICH tells all proxies of a job the one address on which `mpiexec` listens, and
Slurm or ssh start them by that command: it tells jobs apart on all hosts. Else the number of the proxy does so on one.
"""

import itertools
from pathlib import Path

# The kernel keeps 15 characters of a program's name.
_PROXIES = ("hydra_pmi_proxy", "hydra_bstrap_pr")
_MOST_ANCESTORS = 64


_ADDRESS = "--control-port"


def find_proxy(pid: str = "self", processes: Path = Path("/proc")) -> str | None:
    """Returns the number of the process of Hydra that is this one's nearest ancestor; None where none is.

    Args:
        pid: The process to begin with.
        processes: Where the kernel describes the processes.
    """
    for _ in range(_MOST_ANCESTORS):
        try:
            # "32406 (hydra_pmi_proxy) S 32403 ...": the name may hold spaces and brackets itself.
            text = (processes / pid / "stat").read_text(errors="replace")
        except OSError:
            return None
        name = text.partition("(")[2].rpartition(")")[0]
        number, _, rest = text.partition(" ")
        if name in _PROXIES:
            return number
        pid = rest.rpartition(")")[2].split()[1]
        if pid == "0":
            return None
    return None


def find_mpiexec(pid: str = "self", processes: Path = Path("/proc")) -> str | None:
    """Returns the address of the `mpiexec` of this process, alike on all hosts; None where its proxy does not say it.

    Args:
        pid: The process to begin with.
        processes: Where the kernel describes the processes.
    """
    proxy = find_proxy(pid, processes)
    if proxy is None:
        return None
    try:
        words = (processes / proxy / "cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return None
    return next((after for word, after in itertools.pairwise(words) if word == _ADDRESS and after), None)

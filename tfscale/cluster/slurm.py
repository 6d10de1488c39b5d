"""The cluster in the variables that Slurm's `srun` gives to each task of a step.

Rank and number of tasks, the hosts of the step and the number of tasks on each of them say where every worker
runs. Slurm names no ports: they follow from the numbers of job and step, or start at `TFSCALE_PORT`.

A batch script and the shell of `salloc` have variables of the job too, but are one process: only a step counts.

Reference:
    https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES
"""

import re
from collections.abc import Mapping, Sequence

from tfscale.cluster import mpi
from tfscale.cluster.addresses import add_ports, derive_port, read_first_port
from tfscale.cluster.host_list import MAX_WORKERS, expand_hosts
from tfscale.cluster.spec import ClusterSpec
from tfscale.cluster.variables import read_number, read_rank, require
from tfscale.errors import ClusterError

_SOURCE = "Slurm"
_RANK = "SLURM_PROCID"
# srun sets the step's; inside a step, the names without STEP hold the same.
_NUM_TASKS = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")
_HOSTS = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
_TASKS_PER_HOST = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
_GROUP = re.compile(r"([1-9][0-9]{0,5})(?:\(x([1-9][0-9]{0,5})\))?")
_WAY_OUT = "Start every worker with `srun`, or set TF_CONFIG, which is looked at first."


def in_step(environ: Mapping[str, str]) -> bool:
    """Whether this process was started by `srun`."""
    return any(name.startswith("SLURM_STEP") for name in environ)


def read(environ: Mapping[str, str]) -> ClusterSpec | None:
    """Reads the step that this process is a task of; returns None where Slurm started one process only.

    Raises:
        ClusterError: The variables are incomplete or contradict each other, or several tasks were asked
            for and `srun` did not start them.
    """
    if _is_of_mpi(environ) or not (in_step(environ) or _expects_tasks(environ)):
        return None
    if not in_step(environ):
        require(environ, _SOURCE, [(_RANK,), _NUM_TASKS, _HOSTS[:1], _TASKS_PER_HOST[:1]], _WAY_OUT)
    rank_name, count_name, hosts_name = require(environ, _SOURCE, [(_RANK,), _NUM_TASKS, _HOSTS], _WAY_OUT)
    num_tasks = read_number(environ, count_name, 1, MAX_WORKERS, _SOURCE)
    rank = read_rank(environ, rank_name, num_tasks, _SOURCE)
    hosts = expand_hosts(environ[hosts_name], hosts_name)
    places = _place_tasks(_tasks_per_host(environ, num_tasks, len(hosts)), environ.get("SLURM_DISTRIBUTION", ""))
    _check_place(environ, places[rank], rank)
    first_port = read_first_port(environ, derive_port(_step(environ)))
    workers = add_ports([hosts[place] for place in places], first_port)
    return ClusterSpec(workers=workers, rank=rank, source=_SOURCE)


def _expects_tasks(environ: Mapping[str, str]) -> bool:
    """Whether a job asks for several tasks, so that one process alone would be half a job."""
    counts = [environ[name] for name in _NUM_TASKS if name in environ]
    return environ.get(_RANK, "0") != "0" or any(count != "1" for count in counts)


def _is_of_mpi(environ: Mapping[str, str]) -> bool:
    """Whether `mpirun` started this process: its daemons are the tasks of the step, not the workers."""
    names = [name for name in _NUM_TASKS if name in environ]
    slurms = (environ.get(_RANK), environ[names[0]] if names else None)
    return any(
        rank in environ and size in environ and (not in_step(environ) or (environ[rank], environ[size]) != slurms)
        for rank, size in mpi.RANKS_AND_SIZES
    )


def _tasks_per_host(environ: Mapping[str, str], num_tasks: int, num_hosts: int) -> list[int]:
    """Returns the number of tasks on each host, from a list such as `2(x3),1`."""
    if not any(name in environ for name in _TASKS_PER_HOST) and num_hosts in (1, num_tasks):
        return [num_tasks // num_hosts] * num_hosts  # a host of a step has one task at least
    [name] = require(environ, _SOURCE, [_TASKS_PER_HOST], _WAY_OUT)
    matches = [_GROUP.fullmatch(each) for each in environ[name].split(",")]
    groups = [(int(match[1]), int(match[2] or 1)) for match in matches if match]
    named = (sum(count * times for count, times in groups), sum(times for _, times in groups))
    if len(groups) != len(matches) or named != (num_tasks, num_hosts):
        raise ClusterError(
            f"`{name}` must give the tasks of each of the {num_hosts} hosts, {num_tasks} in all, "
            f"in a form such as '2(x3),1'.\n"
            f"Received: {environ[name][:200]!r}, from {_SOURCE}. {_WAY_OUT}"
        )
    return [count for count, times in groups for _ in range(times)]


def _place_tasks(counts: Sequence[int], distribution: str) -> list[int]:
    """Returns the index of the host of each task: one host after the other, or in turn."""
    method = re.split("[:,]", distribution)[0]
    turns = [(turn, host) for host, count in enumerate(counts) for turn in range(count)]
    if method in ("", "*", "block"):
        return [host for _, host in turns]
    if method == "cyclic":
        return [host for _, host in sorted(turns)]
    raise ClusterError(
        f"Tasks must be distributed over the hosts as 'block' or 'cyclic'.\n"
        f"Received: SLURM_DISTRIBUTION={distribution[:200]!r}. "
        f"Start the workers with `srun --distribution=block`, or set TF_CONFIG, which is looked at first."
    )


def _check_place(environ: Mapping[str, str], place: int, rank: int) -> None:
    """Refuses a job whose tasks are not where they should be: its workers would wait for each other for ever."""
    if "SLURM_NODEID" in environ and environ["SLURM_NODEID"] != str(place):
        raise ClusterError(
            f"Task {rank} must run on host {place} of the step, as its list of hosts and tasks says.\n"
            f"Received: SLURM_NODEID={environ['SLURM_NODEID'][:20]!r}. "
            f"Start the workers with `srun --distribution=block`, or set TF_CONFIG, which is looked at first."
        )


def _step(environ: Mapping[str, str]) -> str:
    """Returns what tells this step from others: the number of its job, moved on by its own."""
    numbers = [environ.get("SLURM_JOB_ID", "0"), environ.get("SLURM_STEP_ID", "0")]
    if all(re.fullmatch("[0-9]{1,11}", each) for each in numbers):
        return str(sum(map(int, numbers)))
    return "/".join(numbers)

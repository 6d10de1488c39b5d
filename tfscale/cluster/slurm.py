"""The cluster in the variables that Slurm's `srun` gives to each task of a step.

Rank and number of tasks, the hosts of the step and the number of tasks on each of them say where every worker
runs. Slurm names no ports: they follow from the numbers of job and step, or start at `TFSCALE_PORT`.

A batch script and the shell of `salloc` have variables of the job too, but are one process: only a step counts. A
batch script that was submitted from inside a step inherits that step's variables, and newer Slurm runs the shell of
`salloc` as a step of its own: neither was started by `srun`. `TFSCALE_HOSTS` replaces the names of the hosts.

Reference:
    https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES
"""

import re
from collections.abc import Mapping, Sequence

from tfscale.cluster import mpi
from tfscale.cluster.addresses import HOSTS, add_ports, derive_port, read_first_port, read_hosts
from tfscale.cluster.host_list import MAX_WORKERS, expand_hosts
from tfscale.cluster.shown import quoted
from tfscale.cluster.spec import ClusterSpec
from tfscale.cluster.variables import WAY_ROUND, read_number, read_rank, require
from tfscale.errors import ClusterError

_SOURCE = "Slurm"
_RANK = "SLURM_PROCID"
# srun sets the step's; inside a step, the names without STEP hold the same.
_NUM_TASKS = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")
_HOSTS = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
_TASKS_PER_HOST = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
# Of the step, and what it is outside of one: in a step of `srun` both are the same.
_OF_STEP_AND_JOB = (("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), ("SLURM_STEP_NUM_NODES", "SLURM_NNODES"))
_STEP_ID = "SLURM_STEP_ID"
_INTERACTIVE = "4294967290"
_NUM_HOSTS = ("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_HET_SIZE", "SLURM_PACK_SIZE")
_GROUP = re.compile(r"([1-9][0-9]{0,5})(?:\(x([1-9][0-9]{0,5})\))?")
_WAY_OUT = f"Start every worker with `srun`, or set TF_CONFIG, which is looked at first. {WAY_ROUND}"


def in_step(environ: Mapping[str, str]) -> bool:
    """Whether this process was started by `srun`, or by what `srun` has started."""
    return any(name.startswith("SLURM_STEP") for name in environ) and not (_is_inherited(environ) or _is_shell(environ))


def check_allocation(environ: Mapping[str, str]) -> None:
    """Refuses one process alone on several hosts that Slurm has given to the job.

    Raises:
        ClusterError: This is no step, and the job has several hosts.
    """
    several = [name for name in _NUM_HOSTS if environ.get(name, "1") not in ("1", "0", "")]
    if several and not in_step(environ):
        raise ClusterError(
            f"A job of several hosts must be started with `srun`: this process would use one of them.\n"
            f"Received: {_show(environ, several)}; missing: the variables of a step. {_WAY_OUT}"
        )


def read(environ: Mapping[str, str]) -> ClusterSpec | None:
    """Reads the step that this process is a task of; returns None where Slurm started one process only.

    Raises:
        ClusterError: The variables are incomplete or contradict each other, or several tasks were asked
            for and `srun` did not start them.
    """
    if _is_of_mpi(environ):
        return None
    if not in_step(environ):
        check_allocation(environ)
        _check_tasks(environ)
        return None
    rank_name, count_name = require(environ, _SOURCE, [(_RANK,), _NUM_TASKS], _WAY_OUT)
    num_tasks = read_number(environ, count_name, 1, MAX_WORKERS, _SOURCE)
    rank = read_rank(environ, rank_name, num_tasks, _SOURCE)
    first_port = read_first_port(environ, derive_port(_step(environ)))
    if HOSTS in environ:
        workers = read_hosts(environ, num_tasks, first_port)
    else:
        workers = add_ports(_hosts_of_tasks(environ, num_tasks, rank), first_port)
    return ClusterSpec(workers=workers, rank=rank, source=_SOURCE)


def _hosts_of_tasks(environ: Mapping[str, str], num_tasks: int, rank: int) -> list[str]:
    """Returns the host of each task of the step."""
    [_, _, name] = require(environ, _SOURCE, [(_RANK,), _NUM_TASKS, _HOSTS], _WAY_OUT)
    hosts = expand_hosts(environ[name], name)
    places = _place_tasks(_tasks_per_host(environ, num_tasks, len(hosts)), environ.get("SLURM_DISTRIBUTION", ""))
    _check_place(environ, places[rank], rank)
    return [hosts[place] for place in places]


def _check_tasks(environ: Mapping[str, str]) -> None:
    """Refuses one process of a job that asks for several tasks: it would be half a job."""
    if _is_shell(environ):
        # A person at a terminal, on the one host of the job.
        return
    counts = [environ[name] for name in _NUM_TASKS if name in environ]
    if environ.get(_RANK, "0") == "0" and all(count == "1" for count in counts):
        return
    if _is_inherited(environ):
        names = [name for pair in _OF_STEP_AND_JOB for name in pair if name in environ]
        raise ClusterError(
            f"A job of several tasks must be started with `srun`; the variables of the step are those of another job, "
            f"from which this one was submitted.\n"
            f"Received: {_show(environ, names)}; missing: the variables of a step of this job. {_WAY_OUT}"
        )
    require(environ, _SOURCE, [(_RANK,), _NUM_TASKS, _HOSTS[:1], _TASKS_PER_HOST[:1]], _WAY_OUT)


def _is_inherited(environ: Mapping[str, str]) -> bool:
    """Whether the variables of the step are those of another job: this one was submitted from inside it."""
    pairs = [(environ.get(step), environ.get(job)) for step, job in _OF_STEP_AND_JOB]
    return not _is_shell(environ) and any(step and job and step != job for step, job in pairs)


def _is_shell(environ: Mapping[str, str]) -> bool:
    """Whether this is the step in which newer Slurm runs the shell of `salloc`, and no batch script from there."""
    return environ.get(_STEP_ID) == _INTERACTIVE and environ.get("ENVIRONMENT") != "BATCH"


def _show(environ: Mapping[str, str], names: Sequence[str]) -> str:
    return ", ".join(f"{name}={quoted(environ[name], 60)}" for name in names)


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

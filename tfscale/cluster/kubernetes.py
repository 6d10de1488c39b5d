"""The cluster of a Kubernetes Job with `completionMode: Indexed` and a headless Service.

Kubernetes sets two variables in every pod: `JOB_COMPLETION_INDEX`, its rank, and `HOSTNAME`, which is the Job's
name, a hyphen and the rank. The pods reach each other as `<job>-<rank>.<service>` when the template's `subdomain`
names the Service. The manifest adds, in its `env`:

- `TFSCALE_NUM_WORKERS`: the Job's `completions` (and `parallelism`: all have to run at once),
- `TFSCALE_SERVICE`: the headless Service,
- `TFSCALE_PORT`: the port of every worker; 2222 when it is left out.

With `TFSCALE_NUM_WORKERS` 1, every pod trains for itself. `TFSCALE_HOSTS` replaces the names derived from the Service.

A JobSet of several jobs counts the pods of each job from 0. Where its labels are given to the container as `JOB_INDEX`,
`REPLICATED_JOB_REPLICAS` and `GLOBAL_REPLICAS`, `replicas` of one template are found by them, see `jobset`. Else, and
for several templates, `TFSCALE_HOSTS` names all pods, such as `train-chief-0-0.train,train-worker-[0-1]-[0-3].train`,
and the rank is the place of the pod's own name.

References:
    https://kubernetes.io/docs/tasks/job/job-with-pod-to-pod-communication/
    https://jobset.sigs.k8s.io/docs/concepts/
"""

from collections.abc import Mapping, Sequence

from tfscale.cluster.addresses import DEFAULT_PORT, HOSTS, add_ports, find_own_place, read_first_port, read_hosts
from tfscale.cluster.host_list import MAX_WORKERS
from tfscale.cluster.jobset import find_pods, has_several_jobs
from tfscale.cluster.shown import quoted
from tfscale.cluster.spec import ClusterSpec
from tfscale.cluster.variables import WAY_ROUND, read_number, read_rank, require
from tfscale.errors import ClusterError

_SOURCE = "Kubernetes"
_RANK = "JOB_COMPLETION_INDEX"
NUM_WORKERS = "TFSCALE_NUM_WORKERS"
SERVICE = "TFSCALE_SERVICE"
_POD = "HOSTNAME"
_WAY_OUT = (
    f"Add them to the `env` of the Job's container; set {NUM_WORKERS} to the Job's completions, "
    f"or to 1 where every pod trains for itself. {WAY_ROUND}"
)


def read(environ: Mapping[str, str]) -> ClusterSpec | None:
    """Reads the pod's place in its Job; returns None outside of an Indexed Job.

    Raises:
        ClusterError: The variables are incomplete or contradict each other.
    """
    if _RANK not in environ:
        return None
    require(environ, _SOURCE, [(_RANK,), (NUM_WORKERS,)], _WAY_OUT)
    num_workers = read_number(environ, NUM_WORKERS, 1, MAX_WORKERS, _SOURCE)
    port = read_first_port(environ, DEFAULT_PORT)
    if num_workers == 1:
        return ClusterSpec(workers=(f"localhost:{port}",), rank=0, source=_SOURCE)
    workers, rank = _find(environ, num_workers)
    return ClusterSpec(workers=add_ports(workers, port), rank=rank, source=_SOURCE)


def _find(environ: Mapping[str, str], num_workers: int) -> tuple[Sequence[str], int]:
    """Returns the hosts of all workers, and the rank of this one."""
    several = has_several_jobs(environ)
    if HOSTS not in environ:
        require(environ, _SOURCE, [(_RANK,), (NUM_WORKERS,), (SERVICE,), (_POD,)], _WAY_OUT)
        if several:
            index = read_number(environ, _RANK, 0, MAX_WORKERS, _SOURCE)
            return find_pods(environ, num_workers, index, environ[SERVICE])
        rank = read_rank(environ, _RANK, num_workers, _SOURCE)
        return _pods(environ, num_workers, rank), rank
    place = find_own_place(environ)
    if place is None and several:
        raise ClusterError(
            f"`{HOSTS}` must have the name of this pod once: in a JobSet of several jobs it tells the rank.\n"
            f"Received: {quoted(environ[HOSTS])} for {_POD}={quoted(environ.get(_POD, ''))}. Name all pods, for "
            f"example, as train-worker-[0-1]-[0-3].train."
        )
    rank = read_rank(environ, _RANK, num_workers, _SOURCE) if place is None else place
    return read_hosts(environ, num_workers, read_first_port(environ, DEFAULT_PORT)), rank


def _pods(environ: Mapping[str, str], num_workers: int, rank: int) -> list[str]:
    job, hyphen, index = environ[_POD].rpartition("-")
    if not job or not hyphen or index != str(rank):
        raise ClusterError(
            f"`{_POD}` must be the name that an Indexed Job gives its pod: the Job's, a hyphen and {rank}.\n"
            f"Received: {environ[_POD][:200]!r}. "
            f"Leave the pod's hostname to the Job, or name the hosts of all workers in {HOSTS}."
        )
    return [f"{job}-{each}.{environ[SERVICE]}" for each in range(num_workers)]

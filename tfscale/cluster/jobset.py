"""Which workers are the pods of a JobSet, of which each job counts its own from 0?

JobSet sets no variables. It labels its pods, and a manifest gives those labels to a container, by a `fieldRef` to
`metadata.labels['jobset.sigs.k8s.io/job-index']` and so on:

- `JOB_INDEX`: the `job-index`, which of the jobs of one template this is,
- `REPLICATED_JOB_REPLICAS`: the `replicatedjob-replicas`, how many jobs this template has,
- `GLOBAL_REPLICAS`: the `global-replicas`, how many jobs the set has in all.

Jobs of one template have as many pods each, and names that differ by a number: that is enough. Of another template the
pod knows neither name nor size: then `TFSCALE_HOSTS` has to name all pods.

References:
    https://jobset.sigs.k8s.io/docs/concepts/
    https://github.com/kubernetes-sigs/jobset/blob/main/api/jobset/v1alpha2/jobset_types.go
"""

from collections.abc import Mapping

from tfscale.cluster.host_list import MAX_WORKERS
from tfscale.cluster.variables import WAY_ROUND, read_number, read_rank, require
from tfscale.errors import ClusterError

_SOURCE = "JobSet"
JOB_INDEX = "JOB_INDEX"
REPLICAS = "REPLICATED_JOB_REPLICAS"
GLOBAL_REPLICAS = "GLOBAL_REPLICAS"
LABELS = {JOB_INDEX: "job-index", REPLICAS: "replicatedjob-replicas", GLOBAL_REPLICAS: "global-replicas"}
"""The labels behind the variables, after `jobset.sigs.k8s.io/`."""
# A number of a job by itself may be anybody's.
_NAMES = ("JOBSET_NAME", "REPLICATED_JOB_NAME", REPLICAS, GLOBAL_REPLICAS)
_WAY_OUT = (
    "Add them to the `env` of the container: "
    + ", ".join(
        f"{name} by a fieldRef to metadata.labels['jobset.sigs.k8s.io/{label}']" for name, label in LABELS.items()
    )
    + f". {WAY_ROUND}"
)


def has_several_jobs(environ: Mapping[str, str]) -> bool:
    """Whether this pod is known to be in a JobSet of several jobs.

    Raises:
        ClusterError: A number is none.
    """
    if not any(name in environ for name in _NAMES):
        return False
    counts = [
        read_number(environ, name, 1, MAX_WORKERS, _SOURCE) for name in (REPLICAS, GLOBAL_REPLICAS) if name in environ
    ]
    index = read_number(environ, JOB_INDEX, 0, MAX_WORKERS, _SOURCE) if JOB_INDEX in environ else 0
    return max([*counts, index + 1]) > 1


def find_pods(environ: Mapping[str, str], num_workers: int, index: int, service: str) -> tuple[list[str], int]:
    """Returns the hosts of all pods, job by job, and the rank of this one.

    Args:
        environ: The environment variables, by name.
        num_workers: Pods of all jobs.
        index: Of this pod in its job.
        service: The headless Service, that is the name of the set or its `network.subdomain`.

    Raises:
        ClusterError: The variables are incomplete, contradict each other, or tell of jobs of another template.

    Example:
        >>> from tfscale.cluster.jobset import find_pods
        >>> labels = {"JOB_INDEX": "1", "REPLICATED_JOB_REPLICAS": "2", "GLOBAL_REPLICAS": "2"}
        >>> find_pods({**labels, "HOSTNAME": "x-w-1-0"}, 4, 0, "x")
        (['x-w-0-0.x', 'x-w-0-1.x', 'x-w-1-0.x', 'x-w-1-1.x'], 2)
    """
    require(environ, _SOURCE, [(name,) for name in LABELS], _WAY_OUT)
    replicas = read_number(environ, REPLICAS, 1, MAX_WORKERS, _SOURCE)
    in_all = read_number(environ, GLOBAL_REPLICAS, 1, MAX_WORKERS, _SOURCE)
    if in_all != replicas:
        raise ClusterError(
            "The pods of a JobSet of several templates must be named: none knows names and sizes of other jobs.\n"
            f"Received: {REPLICAS}={replicas}, {GLOBAL_REPLICAS}={in_all}; missing: TFSCALE_HOSTS. Give every pod, for "
            "example, TFSCALE_HOSTS=train-chief-0-0.train,train-worker-[0-1]-[0-3].train; its own name tells its rank."
        )
    job = read_rank(environ, JOB_INDEX, replicas, _SOURCE)
    each, left = divmod(num_workers, replicas)
    if left:
        raise ClusterError(
            "`TFSCALE_NUM_WORKERS` must count the pods of all jobs of a JobSet, and each job has as many.\n"
            f"Received: {num_workers} workers in {replicas} jobs. Set it to `replicas` times `completions`."
        )
    if not 0 <= index < each:
        raise ClusterError(
            f"The index of a pod must be from 0 to {each - 1}: {replicas} jobs share {num_workers} workers.\n"
            f"Received: JOB_COMPLETION_INDEX={index}. Set TFSCALE_NUM_WORKERS to `replicas` times `completions`."
        )
    name, ending = environ["HOSTNAME"], f"-{job}-{index}"
    if not name.endswith(ending) or name == ending:
        raise ClusterError(
            f"`HOSTNAME` must be the name that a JobSet gives its pod, which ends with {ending!r}.\n"
            f"Received: {name[:200]!r}. Leave the pod's hostname to the JobSet, or name all pods in TFSCALE_HOSTS."
        )
    first = name.removesuffix(ending)
    return [f"{first}-{one}-{pod}.{service}" for one in range(replicas) for pod in range(each)], job * each + index

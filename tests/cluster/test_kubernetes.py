import pytest

from tests.cluster.refusal import assert_refused
from tfscale import resolve_cluster

POD = {
    "JOB_COMPLETION_INDEX": "1",
    "HOSTNAME": "train-digits-1",
    "TFSCALE_NUM_WORKERS": "3",
    "TFSCALE_SERVICE": "workers",
    "KUBERNETES_SERVICE_HOST": "10.96.0.1",
}


def without(*names):
    return {name: value for name, value in POD.items() if name not in names}


@pytest.mark.parametrize(
    ("environ", "workers", "rank"),
    [
        (POD, ("train-digits-0.workers:2222", "train-digits-1.workers:2222", "train-digits-2.workers:2222"), 1),
        ({**POD, "TFSCALE_NUM_WORKERS": "2", "TFSCALE_PORT": "7000", "TFSCALE_SERVICE": "w.ns.svc.cluster.local"},
         ("train-digits-0.w.ns.svc.cluster.local:7000", "train-digits-1.w.ns.svc.cluster.local:7000"), 1),
        ({**without("HOSTNAME", "TFSCALE_SERVICE"), "TFSCALE_HOSTS": "a,b,c"}, ("a:2222", "b:2222", "c:2222"), 1),
        # A JobSet counts the pods of each of its jobs from 0: the pod's own name tells its rank.
        ({**without("TFSCALE_SERVICE"), "TFSCALE_NUM_WORKERS": "4", "JOB_COMPLETION_INDEX": "0", "HOSTNAME": "x-w-1-0",
          "TFSCALE_HOSTS": "x-w-[0-1]-[0-1].x"},
         ("x-w-0-0.x:2222", "x-w-0-1.x:2222", "x-w-1-0.x:2222", "x-w-1-1.x:2222"), 2),
        ({**without("TFSCALE_SERVICE"), "JOB_COMPLETION_INDEX": "1", "HOSTNAME": "x-worker-0-1",
          "TFSCALE_HOSTS": "x-chief-0-0.x,x-worker-0-[0-1].x"},
         ("x-chief-0-0.x:2222", "x-worker-0-0.x:2222", "x-worker-0-1.x:2222"), 2),
        ({**without("TFSCALE_SERVICE"), "HOSTNAME": "x-1", "TFSCALE_HOSTS": "x-0:5,x-1:5,x-2:5"},
         ("x-0:5", "x-1:5", "x-2:5"), 1),
        # Every pod for itself, whatever its index.
        ({**without("TFSCALE_SERVICE"), "TFSCALE_NUM_WORKERS": "1"}, ("localhost:2222",), 0),
    ],
)  # fmt: skip
def test_pod(environ, workers, rank):
    spec = resolve_cluster(environ)
    assert (spec.source, spec.workers, spec.rank) == ("Kubernetes", workers, rank)


def job_set(job, index, *, jobs=2, in_all=None, pods=4, **more):
    """A pod of a JobSet, whose labels the manifest gives to the container."""
    labels = {"JOB_INDEX": str(job), "REPLICATED_JOB_REPLICAS": str(jobs), "GLOBAL_REPLICAS": str(in_all or jobs)}
    own = {"JOB_COMPLETION_INDEX": str(index), "HOSTNAME": f"train-w-{job}-{index}", "TFSCALE_SERVICE": "train"}
    return {**own, **labels, "TFSCALE_NUM_WORKERS": str(pods), **more}


def test_pods_of_a_job_set_of_several_jobs():
    specs = [resolve_cluster(job_set(job, index, TFSCALE_PORT="7")) for job in range(2) for index in range(2)]
    assert [spec.rank for spec in specs] == [0, 1, 2, 3]
    named = tuple(f"train-w-{job}-{index}.train:7" for job in range(2) for index in range(2))
    assert {spec.workers for spec in specs} == {named}
    # What a container of a set of one job has besides changes nothing, nor does a number of somebody else's.
    one = {**POD, "JOBSET_NAME": "x", "JOB_INDEX": "0", "REPLICATED_JOB_REPLICAS": "1", "GLOBAL_REPLICAS": "1"}
    assert resolve_cluster(one) == resolve_cluster(POD) == resolve_cluster({**POD, "JOB_INDEX": "5"})
    # Pods of several templates are named, and find themselves.
    hosts = "x-c-0-0.x,x-w-0-[0-1].x"
    several = job_set(0, 1, jobs=1, in_all=2, pods=3, HOSTNAME="x-w-0-1", TFSCALE_HOSTS=hosts)
    assert resolve_cluster(several).rank == 2


@pytest.mark.parametrize("environ", [{"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, {"HOSTNAME": "web-1"}])
def test_other_pods_train_alone(environ):
    assert resolve_cluster(environ).source == "this machine"


@pytest.mark.parametrize(
    ("environ", "parts"),
    [
        (
            without("TFSCALE_NUM_WORKERS"),
            ["missing: TFSCALE_NUM_WORKERS.", "or to 1 where every pod trains for itself"],
        ),
        ({"JOB_COMPLETION_INDEX": "0"}, ["missing: TFSCALE_NUM_WORKERS."]),
        (without("TFSCALE_SERVICE"), ["missing: TFSCALE_SERVICE."]),
        (without("TFSCALE_SERVICE", "HOSTNAME"), ["missing: TFSCALE_SERVICE, HOSTNAME."]),
        ({**POD, "JOB_COMPLETION_INDEX": "3", "HOSTNAME": "train-3"}, ["must be an integer from 0 to 2"]),
        ({**POD, "HOSTNAME": "train-2"}, ["`HOSTNAME` must be the name that an Indexed Job gives its pod"]),
        ({**POD, "HOSTNAME": "1"}, ["`HOSTNAME` must be"]),
        ({**POD, "TFSCALE_SERVICE": "a b"}, ["'host:port'"]),
        # JobSets of several jobs.
        (job_set(0, 0, in_all=3), ["GLOBAL_REPLICAS=3; missing: TFSCALE_HOSTS."]),
        (job_set(0, 0, pods=3), ["Received: 3 workers in 2 jobs. Set it to `replicas` times `completions`"]),
        (job_set(0, 2), ["The index of a pod must be from 0 to 1", "Received: JOB_COMPLETION_INDEX=2."]),
        (job_set(2, 0), ["`JOB_INDEX` must be an integer from 0 to 1"]),
        (job_set(1, 0, HOSTNAME="train-w-0-0"), ["ends with '-1-0'", "Received: 'train-w-0-0'"]),
        (job_set(1, 0, GLOBAL_REPLICAS="many"), ["`GLOBAL_REPLICAS` must be an integer", "'many', from JobSet"]),
        (
            {**POD, "JOBSET_NAME": "train", "JOB_INDEX": "1"},
            ["JOB_INDEX='1'; missing: REPLICATED_JOB_REPLICAS, GLOBAL_REPLICAS.", "['jobset.sigs.k8s.io/job-index']"],
        ),
        (
            job_set(1, 0, TFSCALE_HOSTS="10.0.0.[1-4]"),
            ["`TFSCALE_HOSTS` must have the name of this pod once", "HOSTNAME='train-w-1-0'"],
        ),
        # What names workers, and nothing that tells which one this is.
        (without("JOB_COMPLETION_INDEX"), ["must say which of its workers this is", "missing: the rank"]),
        ({"TFSCALE_HOSTS": "a,b"}, ["TFSCALE_HOSTS='a,b'; missing: the rank"]),
    ],
)
def test_refusal(environ, parts):
    assert_refused(environ, *parts)

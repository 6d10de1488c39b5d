import shlex

from tfscale import resolve_cluster
from tfscale.launch.worker_plan import Resources, describe, plan_workers

ADDRESSES = ("a:1", "b:1", "a:2")
ARGV = ("python", "train.py", "a b")


def plan(ranks, environ=None, gpus=(), cores=(0, 1, 2, 3), per_worker=None):
    return plan_workers(ADDRESSES, ranks, ARGV, environ or {}, Resources(gpus, cores, per_worker))


def test_workers_of_one_host_divide_it():
    first, second = plan((0, 2), gpus=("0", "1", "2", "3"))
    assert (first.rank, first.address, first.cores) == (0, "a:1", (0, 1))
    assert (second.rank, second.address, second.cores) == (2, "a:2", (2, 3))
    assert [worker.settings["CUDA_VISIBLE_DEVICES"] for worker in (first, second)] == ["0,1", "2,3"]
    assert second.settings["OMP_NUM_THREADS"] == "2"
    assert resolve_cluster(second.settings) == resolve_cluster({"TF_CONFIG": second.spec.to_tf_config()})


def test_a_worker_alone_runs_as_without_a_launcher():
    [worker] = plan((1,), environ={"PYTHONUNBUFFERED": ""})
    assert worker.cores is None
    assert set(worker.settings) == {"TF_CONFIG"}


def test_more_workers_than_cores_have_one_thread_each():
    assert {worker.settings["OMP_NUM_THREADS"] for worker in plan((0, 1, 2), cores=(0, 1))} == {"1"}


def test_description_is_what_a_shell_takes():
    worker = plan((0, 2))[1]
    comment, command = describe(worker).splitlines()
    assert comment == "# worker 2, a:2, core(s) 2,3"
    words = shlex.split(command)
    assert tuple(words[-3:]) == ARGV
    assert dict(word.split("=", 1) for word in words[:-3]) == worker.settings

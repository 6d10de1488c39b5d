import pytest

from tests.cluster.refusal import assert_refused
from tfscale import resolve_cluster
from tfscale.cluster.slurm import in_step

# As srun sets them for `srun -N4 -n7`, with what else could be mistaken for them.
STEP = {
    "SLURM_JOB_ID": "901593",
    "SLURM_STEP_ID": "0",
    "SLURM_JOB_NODELIST": "n[08-20]",
    "SLURM_STEP_NODELIST": "n[08-11]",
    "SLURM_NNODES": "4",
    "SLURM_STEP_NUM_NODES": "4",
    "SLURM_JOB_NUM_NODES": "13",
    "SLURM_NTASKS": "7",
    "SLURM_STEP_NUM_TASKS": "7",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3),1",
    "SLURM_PROCID": "5",
    "SLURM_NODEID": "2",
    "SLURM_LOCALID": "1",
    "TFSCALE_PORT": "2222",
}
SEVEN = ("n08:2222", "n08:2223", "n09:2222", "n09:2223", "n10:2222", "n10:2223", "n11:2222")
TWO = {"SLURM_STEP_NODELIST": "a,b", "SLURM_NTASKS": "2", "SLURM_PROCID": "1", "TFSCALE_PORT": "5"}


# As Slurm 22.05 sets them: for `sbatch -N1`; what such a script inherits when it is submitted from inside of
# `srun -n1`; and in the step in which `salloc` runs its shell.
BATCH = {
    "SLURM_JOB_ID": "11",
    "SLURM_JOB_NODELIST": "n1",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_NNODES": "1",
    "SLURM_PROCID": "0",
    "SLURM_NODEID": "0",
    "SLURM_TASKS_PER_NODE": "1",
    "ENVIRONMENT": "BATCH",
}
OUTER = {
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_LAUNCHER_PORT": "38707",
    "SLURM_STEP_NODELIST": "n1",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_TASKS_PER_NODE": "1",
    "SLURM_NTASKS": "1",
}
SHELL = {**OUTER, "SLURM_STEP_ID": "4294967290"}
ONE_COUNT = {name: value for name, value in STEP.items() if name != "SLURM_NTASKS"}
TWO_HOSTS = {"SLURM_JOB_NUM_NODES": "2", "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "n[1-2]",
             "SLURM_TASKS_PER_NODE": "1(x2)"}  # fmt: skip


def without(environ, *names):
    return {name: value for name, value in environ.items() if name not in names}


@pytest.mark.parametrize(
    ("environ", "workers", "rank"),
    [
        (STEP, SEVEN, 5),
        ({**STEP, "SLURM_PROCID": "0", "SLURM_NODEID": "0"}, SEVEN, 0),
        ({**STEP, "SLURM_PROCID": "6", "SLURM_NODEID": "3"}, SEVEN, 6),
        (without(STEP, "SLURM_NTASKS"), SEVEN, 5),
        (without(STEP, "SLURM_STEP_NUM_TASKS", "SLURM_NODEID"), SEVEN, 5),
        # Names of hosts that lead nowhere: the user's count.
        ({**STEP, "TFSCALE_HOSTS": "a,a,b,b,c,c,d"},
         ("a:2222", "a:2223", "b:2222", "b:2223", "c:2222", "c:2223", "d:2222"), 5),
        ({**without(STEP, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"), "TFSCALE_HOSTS": "10.0.0.[1-7]"},
         tuple(f"10.0.0.{each}:2222" for each in range(1, 8)), 5),
        # They need no known distribution.
        ({**STEP, "SLURM_DISTRIBUTION": "plane=2", "TFSCALE_HOSTS": "10.0.0.[1-7]"},
         tuple(f"10.0.0.{each}:2222" for each in range(1, 8)), 5),
        ({**without(STEP, "SLURM_STEP_NODELIST"), "SLURM_JOB_NODELIST": "n[08-11]"}, SEVEN, 5),
        ({**without(STEP, "SLURM_STEP_TASKS_PER_NODE"), "SLURM_TASKS_PER_NODE": "2(x3),1"}, SEVEN, 5),
        # Without counts there is one way only: all on the one host, or one on each.
        (TWO, ("a:5", "b:5"), 1),
        ({**TWO, "SLURM_STEP_NODELIST": "a"}, ("a:5", "a:6"), 1),
        ({**TWO, "SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_STEP_NODELIST": "a"}, ("a:5",), 0),
        # In turn: each host's first task, then each host's second.
        ({**STEP, "SLURM_DISTRIBUTION": "cyclic:block", "SLURM_NODEID": "1"},
         ("n08:2222", "n09:2222", "n10:2222", "n11:2222", "n08:2223", "n09:2223", "n10:2223"), 5),
        ({**STEP, "SLURM_DISTRIBUTION": "block,Pack"}, SEVEN, 5),
        # srun sets the variables of PMI too; they agree.
        ({**STEP, "PMI_RANK": "5", "PMI_SIZE": "7"}, SEVEN, 5),
        # TF_CONFIG comes first.
        ({**STEP, "TF_CONFIG": '{"cluster": {"worker": ["z:1"]}, "task": {"type": "worker", "index": 0}}'},
         ("z:1",), 0),
    ],
)  # fmt: skip
def test_step(environ, workers, rank):
    spec = resolve_cluster(environ)
    assert (spec.workers, spec.rank) == (workers, rank)
    assert spec.source == ("TF_CONFIG" if "TF_CONFIG" in environ else "Slurm")


def test_every_task_sees_the_same_workers():
    ranks_and_hosts = [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3)]
    environs = [
        {**without(STEP, "TFSCALE_PORT"), "SLURM_PROCID": str(rank), "SLURM_NODEID": str(host)}
        for rank, host in ranks_and_hosts
    ]
    specs = [resolve_cluster(environ) for environ in environs]
    assert [spec.rank for spec in specs] == list(range(7))
    assert len({spec.workers for spec in specs}) == 1


def test_steps_of_one_job_have_ports_of_their_own():
    environs = [{**without(STEP, "TFSCALE_PORT"), "SLURM_STEP_ID": str(step)} for step in range(3)]
    workers = [set(resolve_cluster(environ).workers) for environ in environs]
    assert workers[0].isdisjoint(workers[1])
    assert workers[1].isdisjoint(workers[2])


@pytest.mark.parametrize(
    "environ",
    [
        # A batch script and the shell of salloc are one process each.
        {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n1", "SLURM_PROCID": "0", "SLURM_TASKS_PER_NODE": "1"},
        {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n1", "SLURM_NTASKS": "1"},
        {"SLURM_CONF": "/etc/slurm.conf"},
        BATCH,
        # The shell of salloc, on one host.
        {**without(BATCH, "ENVIRONMENT"), **SHELL},
        {**without(BATCH, "ENVIRONMENT"), **SHELL, "SLURM_NTASKS": "2", "SLURM_TASKS_PER_NODE": "2"},
    ],
)
def test_one_process_of_a_job_trains_alone(environ):
    assert resolve_cluster(environ).source == "this machine"
    assert not in_step(environ)


@pytest.mark.parametrize(
    ("environ", "parts"),
    [
        # Several tasks, and no srun.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_NODELIST": "n1"},
         ["missing: SLURM_STEP_NODELIST, SLURM_STEP_TASKS_PER_NODE.", "srun"]),
        # `sbatch -N2`, `salloc -N2`: with and without tasks, and one more job in a heterogeneous one.
        ({**BATCH, **TWO_HOSTS}, ["several hosts must be started with `srun`", "SLURM_NNODES='2'"]),
        ({**BATCH, **TWO_HOSTS, "SLURM_NTASKS": "2"}, ["SLURM_NNODES='2'", "missing: the variables of a step"]),
        (TWO_HOSTS, ["SLURM_NNODES='2', SLURM_JOB_NUM_NODES='2'"]),
        ({"SLURM_JOB_NUM_NODES": "2"}, ["SLURM_JOB_NUM_NODES='2'"]),
        ({**BATCH, "SLURM_HET_SIZE": "2"}, ["SLURM_HET_SIZE='2'"]),
        ({**without(BATCH, "ENVIRONMENT"), **SHELL, **TWO_HOSTS}, ["SLURM_NNODES='2'"]),
        # A batch script that was submitted from such a shell.
        ({**BATCH, **SHELL, **TWO_HOSTS}, ["SLURM_NNODES='2'"]),
        ({**BATCH, **SHELL, "SLURM_NTASKS": "2"}, ["those of another job"]),
        # The same, submitted from inside of a step, and several tasks on one host.
        ({**BATCH, **OUTER, **TWO_HOSTS}, ["SLURM_NNODES='2'"]),
        ({**BATCH, **OUTER, **TWO_HOSTS, "SLURM_NTASKS": "2"}, ["SLURM_NNODES='2'"]),
        ({**BATCH, **OUTER, "SLURM_NTASKS": "2", "SLURM_TASKS_PER_NODE": "2"},
         ["those of another job", "SLURM_STEP_NUM_TASKS='1', SLURM_NTASKS='2'"]),
        ({**BATCH, **OUTER, "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "1"}, ["those of another job"]),
        ({**STEP, "SLURM_NTASKS": "40", "SLURM_PROCID": "0"}, ["SLURM_JOB_NUM_NODES='13'"]),
        ({**STEP, "TFSCALE_HOSTS": "a,b"}, ["one host for each of the 7 workers"]),
        ({"SLURM_NTASKS": "4"}, ["missing: SLURM_PROCID, SLURM_STEP_NODELIST, SLURM_STEP_TASKS_PER_NODE."]),
        ({"SLURM_PROCID": "1"}, ["missing: SLURM_STEP_NUM_TASKS or SLURM_NTASKS or SLURM_NPROCS, SLURM_STEP_NODELIST"]),
        (without(STEP, "SLURM_PROCID"), ["missing: SLURM_PROCID."]),
        (without(STEP, "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS"), ["missing: SLURM_STEP_NUM_TASKS or SLURM_NTASKS"]),
        (without(STEP, "SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST"), ["missing: SLURM_STEP_NODELIST or"]),
        (without(STEP, "SLURM_STEP_TASKS_PER_NODE"), ["missing: SLURM_STEP_TASKS_PER_NODE or"]),
        ({"SLURM_STEP_ID": "0"}, ["missing: SLURM_PROCID, SLURM_STEP_NUM_TASKS or"]),
        ({**STEP, "SLURM_PROCID": "7"}, ["`SLURM_PROCID` must be an integer from 0 to 6"]),
        ({**STEP, "SLURM_PROCID": "-1"}, ["`SLURM_PROCID` must be an integer"]),
        ({**STEP, "SLURM_PROCID": "five"}, ["`SLURM_PROCID` must be an integer"]),
        ({**ONE_COUNT, "SLURM_STEP_NUM_TASKS": "0"}, ["`SLURM_STEP_NUM_TASKS` must be an integer from 1"]),
        ({**ONE_COUNT, "SLURM_STEP_NUM_TASKS": "9" * 5000}, ["`SLURM_STEP_NUM_TASKS` must be an integer from 1"]),
        ({**ONE_COUNT, "SLURM_STEP_NUM_TASKS": "8"}, ["tasks of each of the 4 hosts, 8 in all"]),
        ({**STEP, "SLURM_STEP_NODELIST": "n[08-10]"}, ["tasks of each of the 3 hosts, 7 in all"]),
        ({**STEP, "SLURM_STEP_TASKS_PER_NODE": "2(x3)"}, ["'2(x3),1'"]),
        ({**STEP, "SLURM_STEP_TASKS_PER_NODE": "2(3),1"}, ["'2(x3),1'"]),
        ({**STEP, "SLURM_STEP_TASKS_PER_NODE": ""}, ["'2(x3),1'"]),
        ({**STEP, "SLURM_STEP_TASKS_PER_NODE": "2(x999999),0"}, ["'2(x3),1'"]),
        ({**STEP, "SLURM_STEP_NODELIST": "n[08-"}, ["`SLURM_STEP_NODELIST` must be a list of hosts"]),
        ({**STEP, "SLURM_NODEID": "1"}, ["Task 5 must run on host 2"]),
        ({**STEP, "SLURM_DISTRIBUTION": "plane=2"}, ["'block' or 'cyclic'"]),
        ({**STEP, "SLURM_DISTRIBUTION": "arbitrary"}, ["'block' or 'cyclic'"]),
        ({**STEP, "TFSCALE_PORT": "0"}, ["`TFSCALE_PORT` must be an integer from 1 to 65535"]),
        ({**STEP, "TFSCALE_PORT": "65535"}, ["'host:port'"]),
        ({**STEP, "SLURM_STEP_NODELIST": "n08,n08,n09,n@"}, ["address of worker 6"]),
    ],
)  # fmt: skip
def test_refusal(environ, parts):
    assert_refused(environ, *parts)


@pytest.mark.parametrize(
    "environ",
    [
        # mpirun in a batch script; one of its daemons' children on another host of the job.
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_NODELIST": "n[1-2]"},
        {**TWO, "SLURM_STEP_NODELIST": "n2", "SLURM_NTASKS": "1", "SLURM_PROCID": "0"},
    ],
)
def test_mpirun_in_a_job_is_mpis(environ):
    environ = {**environ, "TFSCALE_HOSTS": "n1,n2", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
    spec = resolve_cluster(environ)
    assert (spec.source, spec.rank, spec.num_workers) == ("Open MPI", 1, 2)

"""Never alone by mistake: an allocation of several hosts, and one process."""

import json

import pytest

from tests.cluster.refusal import assert_refused
from tfscale import resolve_cluster
from tfscale.cluster import signs

VERTEX = {
    "cluster": {"workerpool0": ["a:2222"], "workerpool1": ["b:2222"]},
    "task": {"type": "workerpool0", "index": 0},
}


@pytest.fixture
def node_file(tmp_path):
    def write(text):
        path = tmp_path / "nodes"
        path.write_text(text)
        return str(path)

    return write


@pytest.mark.parametrize(
    ("environ", "seen"),
    [
        (
            {"LSB_MCPU_HOSTS": "hostA 4 hostB 4", "LSB_HOSTS": "hostA hostB", "LSB_JOBID": "1"},
            "LSB_MCPU_HOSTS='hostA 4 ",
        ),
        ({"LSB_HOSTS": "hostA hostA hostB"}, "LSB_HOSTS='hostA hostA hostB'"),
        ({"PBS_JOBID": "1.pbs", "PBS_NUM_NODES": "2", "PBS_NUM_PPN": "4"}, "PBS_NUM_NODES='2'"),
        ({"NHOSTS": "2", "NSLOTS": "8", "PE_HOSTFILE": "/x"}, "NHOSTS='2'"),
        ({"COBALT_JOBSIZE": "4", "COBALT_JOBID": "1"}, "COBALT_JOBSIZE='4'"),
        ({"PJM_NODE": "12"}, "PJM_NODE='12'"),
        ({"AZ_BATCH_HOST_LIST": "10.0.0.4,10.0.0.5"}, "AZ_BATCH_HOST_LIST='10.0.0.4,10.0.0.5'"),
        ({"AZ_BATCH_NODE_LIST": "10.0.0.4;10.0.0.5"}, "AZ_BATCH_NODE_LIST='10.0.0.4;10.0.0.5'"),
        ({"CLUSTER_SPEC": json.dumps(VERTEX)}, "CLUSTER_SPEC="),
        ({"CLUSTER_SPEC": '{"worker": ["a:1", "b:1"]}', "JOB_NAME": "worker", "TASK_INDEX": "0"}, "CLUSTER_SPEC="),
    ],
)
def test_several_hosts_and_one_process(environ, seen):
    assert_refused(environ, f"Received: {seen}", "Start one worker per host", "TFSCALE_ALONE=1")


@pytest.mark.parametrize("name", ["PBS_NODEFILE", "OAR_NODEFILE", "OAR_NODE_FILE", "COBALT_NODEFILE"])
def test_list_in_a_file(node_file, name):
    assert_refused({name: node_file("n1\nn1\nn2\nn2\n")}, f"{name}=", "2 hosts")
    assert resolve_cluster({name: node_file("n1\nn1\n\n")}).num_workers == 1


def test_what_the_file_says_counts(node_file):
    """`-l nodes=2` may be two places on one host."""
    assert resolve_cluster({"PBS_NODEFILE": node_file("n1\nn1\n"), "PBS_NUM_NODES": "2"}).num_workers == 1


def test_files_of_containers(tmp_path, monkeypatch):
    """A container of one's own in SageMaker, and Determined: the hosts are in a file, and in no variable."""
    path = tmp_path / "file.json"
    path.write_text('{"current_host": "algo-1", "hosts": ["algo-1", "algo-2"]}')
    count = signs._listed(path, "hosts")
    assert count("arn") == 2
    assert signs._listed(path, "container_addrs")("arn") is None
    assert signs._listed(tmp_path / "none", "hosts")("arn") is None
    monkeypatch.setattr(signs, "SIGNS", (signs.Sign("SageMaker", {"TRAINING_JOB_ARN": count}),))
    assert_refused({"TRAINING_JOB_ARN": "arn"}, "SageMaker has given this job 2 hosts")


@pytest.mark.parametrize(
    "environ",
    [
        {"LSB_MCPU_HOSTS": "hostA 8", "LSB_HOSTS": " ".join(["hostA"] * 8), "LSB_DJOB_NUMPROC": "8"},
        {"PBS_JOBID": "1.pbs", "PBS_NUM_NODES": "1", "PBS_NP": "8", "NCPUS": "8"},
        {"PBS_NODEFILE": "/var/spool/pbs/aux/that is not here"},
        {"PBS_NODEFILE": "/dev/zero"},
        {"PBS_NODEFILE": "\0"},
        {"NHOSTS": "1", "NSLOTS": "8"},
        {"AZ_BATCH_HOST_LIST": "10.0.0.4", "AZ_BATCH_NODE_LIST": "10.0.0.4;"},
        {"CLUSTER_SPEC": '{"cluster": {"workerpool0": ["a:2222"]}, "task": {"type": "workerpool0", "index": 0}}'},
        {"CLUSTER_SPEC": "spec.yaml"},
        {"CLUSTER_SPEC": "[" * 9000},
        {"DET_ALLOCATION_ID": "1", "DET_SLOT_IDS": "[0,1,2,3]"},
        # Each of an array trains for itself: what it is for.
        {"LSB_JOBINDEX": "3", "LSB_MCPU_HOSTS": "hostA 1"},
        {"PBS_ARRAY_INDEX": "3"},
        {"SGE_TASK_ID": "3", "SGE_TASK_LAST": "9"},
        {"SLURM_ARRAY_TASK_COUNT": "9", "SLURM_ARRAY_TASK_ID": "3", "SLURM_NTASKS": "1", "SLURM_NNODES": "1"},
        {"AWS_BATCH_JOB_ARRAY_INDEX": "3", "AWS_BATCH_JOB_ARRAY_SIZE": "9"},
        {"CLOUD_RUN_TASK_INDEX": "3", "CLOUD_RUN_TASK_COUNT": "9"},
        {"BATCH_TASK_INDEX": "3", "BATCH_TASK_COUNT": "9"},
        # What people have anyway.
        {"CI": "true", "GITHUB_ACTIONS": "true", "GITHUB_RUN_ATTEMPT": "2", "RUNNER_NAME": "worker 3"},
        {"CI_NODE_INDEX": "2", "CI_NODE_TOTAL": "4", "CIRCLE_NODE_TOTAL": "4"},
        {"PYTEST_XDIST_WORKER": "gw1", "PYTEST_XDIST_WORKER_COUNT": "2"},
        {"COLAB_GPU": "1", "COLAB_RELEASE_TAG": "release", "TF_FORCE_GPU_ALLOW_GROWTH": "true", "HOSTNAME": "5f1"},
        {"KAGGLE_KERNEL_RUN_TYPE": "Interactive", "KAGGLE_CONTAINER_NAME": "kaggle"},
        {"RAY_ADDRESS": "10.0.0.1:6379", "RAY_JOB_ID": "01000000"},
        {"DATABRICKS_RUNTIME_VERSION": "16.4", "SPARK_LOCAL_IP": "10.0.0.1"},
        {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "HOSTNAME": "web-7d4b9c-x2x1z"},
        {"OMP_NUM_THREADS": "8", "CUDA_VISIBLE_DEVICES": "0,1,2,3", "NCCL_DEBUG": "INFO"},
    ],
)
def test_one_process_is_no_mistake(environ):
    assert resolve_cluster(environ).source == "this machine"


def test_a_launcher_knows_more_than_the_allocation(node_file):
    allocation = {"PBS_NODEFILE": node_file("n1\nn2\n"), "TFSCALE_HOSTS": "n1,n2"}
    spec = resolve_cluster({**allocation, "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"})
    assert (spec.source, spec.rank) == ("Open MPI", 1)
    one = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}
    assert resolve_cluster({"PBS_NODEFILE": allocation["PBS_NODEFILE"], **one}).num_workers == 1

"""Hosts that say who is in the job by a rank (or an own name) and a list: each as its documentation has it."""

import pytest

from tests.cluster.refusal import assert_refused
from tfscale import resolve_cluster
from tfscale.cluster.engine_table import ENGINES
from tfscale.cluster.engines import names_of_table

SKYPILOT = {
    "SKYPILOT_NODE_RANK": "1",
    "SKYPILOT_NODE_IPS": "10.128.0.6\n10.128.0.7",
    "SKYPILOT_NUM_NODES": "2",
    "SKYPILOT_NUM_GPUS_PER_NODE": "8",
    "SKYPILOT_TASK_ID": "sky-2026-11-22-00-00-00-000000_train_0",
}
DSTACK = {
    "DSTACK_RUN_NAME": "train",
    "DSTACK_NODE_RANK": "0",
    "DSTACK_NODES_NUM": "2",
    "DSTACK_NODES_IPS": "172.31.0.4\n172.31.0.5",
    "DSTACK_MASTER_NODE_IP": "172.31.0.4",
    "DSTACK_GPUS_PER_NODE": "4",
    "DSTACK_GPUS_NUM": "8",
}
SAGEMAKER = {
    "SM_HOSTS": '["algo-1","algo-2"]',
    "SM_CURRENT_HOST": "algo-2",
    "SM_NUM_GPUS": "4",
    "SM_NETWORK_INTERFACE_NAME": "eth0",
    "TRAINING_JOB_ARN": "arn:aws:sagemaker:eu-west-1:1:training-job/train",
}
VOLCANO = {
    "VC_TASK_INDEX": "1",
    "VK_TASK_INDEX": "1",
    "VC_WORKER_HOSTS": "train-worker-0.train,train-worker-1.train",
    "VC_WORKER_NUM": "2",
    "HOSTNAME": "train-worker-1",
}
TPU = {"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "tpu-0.svc,tpu-1.svc"}
TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "0",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29500",
}
AWS = {"AWS_BATCH_JOB_NUM_NODES": "2", "AWS_BATCH_JOB_NODE_INDEX": "1", "AWS_BATCH_JOB_MAIN_NODE_INDEX": "0"}
IPS = ("10.128.0.6:2222", "10.128.0.7:2222")


def without(environ, *names):
    return {name: value for name, value in environ.items() if name not in names}


@pytest.mark.parametrize(
    ("environ", "source", "workers", "rank"),
    [
        (SKYPILOT, "SkyPilot", IPS, 1),
        ({**SKYPILOT, "SKYPILOT_NODE_IPS": "10.128.0.6\r\n10.128.0.7\n"}, "SkyPilot", IPS, 1),
        ({**SKYPILOT, "SKYPILOT_NODE_IPS": "10.128.0.6,10.128.0.7"}, "SkyPilot", IPS, 1),
        ({**SKYPILOT, "TFSCALE_PORT": "7000"}, "SkyPilot", ("10.128.0.6:7000", "10.128.0.7:7000"), 1),
        ({**SKYPILOT, "SKYPILOT_NODE_IPS": "fd00::1\nfd00::2"}, "SkyPilot", ("[fd00::1]:2222", "[fd00::2]:2222"), 1),
        # What is missing can be told, or is not needed.
        (without(SKYPILOT, "SKYPILOT_NUM_NODES"), "SkyPilot", IPS, 1),
        ({**without(SKYPILOT, "SKYPILOT_NODE_IPS"), "TFSCALE_HOSTS": "a,b"}, "SkyPilot", ("a:2222", "b:2222"), 1),
        # In another network the user's names count.
        ({**SKYPILOT, "TFSCALE_HOSTS": "a\nb"}, "SkyPilot", ("a:2222", "b:2222"), 1),
        ({**SKYPILOT, "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.1"}, "SkyPilot", ("10.0.0.1:2222", "10.0.0.1:2223"), 1),
        (DSTACK, "dstack", ("172.31.0.4:2222", "172.31.0.5:2222"), 0),
        (SAGEMAKER, "SageMaker", ("algo-1:2222", "algo-2:2222"), 1),
        ({**SAGEMAKER, "SM_CURRENT_HOST": "algo-1"}, "SageMaker", ("algo-1:2222", "algo-2:2222"), 0),
        (VOLCANO, "Volcano", ("train-worker-0.train:2222", "train-worker-1.train:2222"), 1),
        # Roles: the order of the ranks is the user's.
        ({**without(VOLCANO, "VC_WORKER_HOSTS", "VC_WORKER_NUM"), "VC_CHIEF_HOSTS": "t-chief-0.t", "VC_CHIEF_NUM": "1",
          "VC_WORKER_HOSTS": "t-worker-0.t,t-worker-1.t", "VC_WORKER_NUM": "2", "HOSTNAME": "t-worker-0",
          "TFSCALE_HOSTS": "t-chief-0.t,t-worker-[0-1].t"},
         "Volcano", ("t-chief-0.t:2222", "t-worker-0.t:2222", "t-worker-1.t:2222"), 1),
        (TPU, "TPU slice", ("tpu-0.svc:2222", "tpu-1.svc:2222"), 1),
        # Engines that list no hosts, and a user who does.
        ({**TORCHRUN, "TFSCALE_HOSTS": "a,a,b,b"}, "torchrun", ("a:2222", "a:2223", "b:2222", "b:2223"), 1),
        ({**AWS, "TFSCALE_HOSTS": "a,b"}, "AWS Batch", ("a:2222", "b:2222"), 1),
        ({"PMIX_RANK": "1", "TFSCALE_HOSTS": "a,b"}, "PMIx", ("a:2222", "b:2222"), 1),
        # One step of one task per host, as SkyPilot makes them on Slurm, and one `mpirun -n 1` per host.
        ({**SKYPILOT, "SLURM_STEP_ID": "3", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "1", "SLURM_PROCID": "0",
          "SLURM_STEP_NODELIST": "n1"}, "SkyPilot", IPS, 1),
        ({**SKYPILOT, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, "SkyPilot", IPS, 1),
    ],
)  # fmt: skip
def test_workers(environ, source, workers, rank):
    spec = resolve_cluster(environ)
    assert (spec.source, spec.workers, spec.rank) == (source, workers, rank)


@pytest.mark.parametrize("num_hosts", [2, 3, 40])
def test_every_host_sees_the_same_workers(num_hosts):
    hosts = [f"10.0.0.{each}" for each in range(num_hosts)]
    environs = [
        {"SKYPILOT_NODE_RANK": str(rank), "SKYPILOT_NODE_IPS": "\n".join(hosts), "SKYPILOT_NUM_NODES": str(num_hosts)}
        for rank in range(num_hosts)
    ]
    specs = [resolve_cluster(environ) for environ in environs]
    assert [spec.rank for spec in specs] == list(range(num_hosts))
    assert {spec.workers for spec in specs} == {tuple(f"{host}:2222" for host in hosts)}


ONE = [
    {**SKYPILOT, "SKYPILOT_NODE_RANK": "0", "SKYPILOT_NODE_IPS": "10.128.0.6", "SKYPILOT_NUM_NODES": "1"},
    {**DSTACK, "DSTACK_NODES_NUM": "1", "DSTACK_NODES_IPS": "172.31.0.4"},
    {**SAGEMAKER, "SM_HOSTS": '["algo-1"]', "SM_CURRENT_HOST": "algo-1"},
    {**VOLCANO, "VC_WORKER_HOSTS": "train-worker-0.train", "VC_WORKER_NUM": "1", "HOSTNAME": "train-worker-0"},
    # Colab and Kaggle with a TPU.
    {"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "localhost"},
    {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "localhost"},
    {"WORLD_SIZE": "1"},
    {"WORLD_SIZE": ""},
    {"WORLD_SIZE": "-1", "RANK": "-1", "LOCAL_RANK": "-1"},
    {"RANK": "0"},
    {"RANK": "captain"},
    {"LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"},
    {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "8", "PET_NODE_RANK": "0"},
    {"PET_NNODES": "1:4"},
    {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "1"},
    {"AWS_BATCH_JOB_NUM_NODES": "1", "AWS_BATCH_JOB_NODE_INDEX": "0"},
    {"JSM_NAMESPACE_RANK": "0", "JSM_NAMESPACE_SIZE": "1", "LSB_MCPU_HOSTS": "batch5 1 h1 42 h2 42"},
    {"PMIX_RANK": "0"},
    {"HOSTNAME": "laptop"},
    {"VC_MAX_NUM": "5"},
    {"TPU_WORKER_ID": "0"},
    {"_CONDOR_PROCNO": "0"},
]


@pytest.mark.parametrize("environ", ONE)
def test_a_job_of_one(environ):
    spec = resolve_cluster(environ)
    assert (spec.source, spec.num_workers) == ("this machine", 1)


@pytest.mark.parametrize(
    ("environ", "parts"),
    [
        # Half of them.
        (without(SKYPILOT, "SKYPILOT_NODE_RANK"), ["SKYPILOT_NUM_NODES='2'", "missing: SKYPILOT_NODE_RANK."]),
        (without(SKYPILOT, "SKYPILOT_NODE_IPS"), ["missing: SKYPILOT_NODE_IPS or TFSCALE_HOSTS."]),
        ({"SKYPILOT_NUM_NODES": "2"}, ["missing: SKYPILOT_NODE_RANK, SKYPILOT_NODE_IPS or TFSCALE_HOSTS."]),
        ({"SKYPILOT_NODE_RANK": "0"}, ["SKYPILOT_NODE_RANK='0'", "missing: SKYPILOT_NODE_IPS or TFSCALE_HOSTS."]),
        (without(DSTACK, "DSTACK_NODES_IPS"), ["dstack says", "DSTACK_NODES_NUM='2'", "missing: DSTACK_NODES_IPS or"]),
        (without(SAGEMAKER, "SM_CURRENT_HOST"), ["SM_HOSTS=", "missing: SM_CURRENT_HOST.", "Set SM_CURRENT_HOST"]),
        (without(SAGEMAKER, "SM_HOSTS"), ["SM_CURRENT_HOST='algo-2'", "missing: SM_HOSTS or TFSCALE_HOSTS."]),
        (without(VOLCANO, "HOSTNAME"), ["VC_WORKER_NUM='2'", "missing: HOSTNAME."]),
        ({**VOLCANO, "VC_PS_HOSTS": "train-ps-0.train", "VC_PS_NUM": "1"}, ["missing: TFSCALE_HOSTS."]),
        ({**VOLCANO, "VC_PS_HOSTS": "train-ps-0.train", "VC_PS_NUM": "1", "TFSCALE_HOSTS": "x,y,z"},
         ["missing: this host's name in TFSCALE_HOSTS"]),
        # Wrong ones.
        ({**SKYPILOT, "SKYPILOT_NUM_NODES": "3"}, ["must have as many", "SKYPILOT_NUM_NODES='3'"]),
        ({**SKYPILOT, "SKYPILOT_NUM_NODES": "two"}, ["`SKYPILOT_NUM_NODES` must be an integer"]),
        ({**SKYPILOT, "SKYPILOT_NODE_RANK": "2"}, ["`SKYPILOT_NODE_RANK` must be an integer from 0 to 1"]),
        ({**SKYPILOT, "SKYPILOT_NODE_IPS": "10.0.0.1 10.0.0.2"}, ["`SKYPILOT_NODE_IPS` must be a list of hosts"]),
        ({**SKYPILOT, "SKYPILOT_NODE_IPS": "a@b\nc"}, ["'host:port'", "SkyPilot"]),
        ({**SKYPILOT, "TFSCALE_HOSTS": "a,b,c"}, ["one host for each of the 2 workers"]),
        ({**SAGEMAKER, "SM_CURRENT_HOST": "algo-3"}, ["`SM_CURRENT_HOST` must be one of the hosts in `SM_HOSTS`"]),
        ({**SAGEMAKER, "SM_HOSTS": '["algo-1", 2]'}, ["`SM_HOSTS` must be a JSON array"]),
        ({**SAGEMAKER, "SM_HOSTS": '["algo-1","algo-2"'}, ["`SM_HOSTS` must be a JSON array"]),
        ({**SAGEMAKER, "SM_HOSTS": "[" * 5000}, ["`SM_HOSTS` must be"]),
        # No list anywhere.
        (TORCHRUN, ["torchrun says", "WORLD_SIZE='4', RANK='1'", "missing: TFSCALE_HOSTS.", "`tfscale launch"]),
        ({"WORLD_SIZE": "2"}, ["WORLD_SIZE='2'", "missing: RANK, TFSCALE_HOSTS."]),
        ({"LOCAL_RANK": "1"}, ["LOCAL_RANK='1'"]),
        ({"LOCAL_WORLD_SIZE": "8"}, ["LOCAL_WORLD_SIZE='8'"]),
        ({"RANK": "3"}, ["RANK='3'"]),
        ({"PET_NNODES": "2", "PET_NODE_RANK": "0"}, ["PET_NNODES='2'"]),
        ({"WORLD_SIZE": "2", "RANK": "2", "TFSCALE_HOSTS": "a,b"}, ["`RANK` must be an integer from 0 to 1"]),
        ({"WORLD_SIZE": "many"}, ["`WORLD_SIZE` must be an integer"]),
        # torchrun in a step of one task is several workers after all.
        ({**TORCHRUN, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "1", "SLURM_PROCID": "0",
          "SLURM_STEP_NODELIST": "n1"}, ["torchrun says", "WORLD_SIZE='4'"]),
        ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_RANK": "0"}, ["HOROVOD_SIZE='2'", "horovodrun"]),
        ({"HOROVOD_RANK": "0"}, ["HOROVOD_RANK='0'", "missing: TFSCALE_HOSTS."]),
        ({"JSM_NAMESPACE_RANK": "0", "JSM_NAMESPACE_SIZE": "2"}, ["jsrun says", "JSM_NAMESPACE_SIZE='2'"]),
        ({"MV2_COMM_WORLD_RANK": "0", "MV2_COMM_WORLD_SIZE": "2"}, ["MV2_COMM_WORLD_SIZE='2'"]),
        ({"FLUX_TASK_RANK": "0", "FLUX_JOB_SIZE": "2"}, ["FLUX_JOB_SIZE='2'"]),
        (AWS, ["AWS_BATCH_JOB_NUM_NODES='2'", "missing: TFSCALE_HOSTS."]),
        ({"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "0"}, ["LWS_GROUP_SIZE='2'"]),
        ({"LEPTON_JOB_TOTAL_WORKERS": "2", "LEPTON_JOB_WORKER_INDEX": "0"}, ["LEPTON_JOB_TOTAL_WORKERS='2'"]),
        ({"NGC_ARRAY_SIZE": "2", "NGC_ARRAY_INDEX": "0"}, ["NGC_ARRAY_SIZE='2'"]),
        ({"BEAKER_REPLICA_COUNT": "2", "BEAKER_REPLICA_RANK": "0"}, ["BEAKER_REPLICA_COUNT='2'"]),
        ({"MF_PARALLEL_NUM_NODES": "2", "MF_PARALLEL_NODE_INDEX": "0"}, ["MF_PARALLEL_NUM_NODES='2'"]),
        ({"_CONDOR_NPROCS": "2", "_CONDOR_PROCNO": "0"}, ["_CONDOR_NPROCS='2'"]),
        ({"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "0"}, ["JAX_NUM_PROCESSES='2'"]),
        ({"DMLC_NUM_WORKER": "2", "DMLC_ROLE": "worker"}, ["DMLC_NUM_WORKER='2'", "missing: its rank, TFSCALE_HOSTS."]),
        ({"PMIX_RANK": "1"}, ["PMIX_RANK='1'", "missing: TFSCALE_HOSTS."]),
    ],
)  # fmt: skip
def test_refusal(environ, parts):
    assert_refused(environ, *parts)


def test_names():
    names = names_of_table()
    assert {"SKYPILOT_NODE_IPS", "SM_HOSTS", "WORLD_SIZE"} <= set(names)
    assert "HOSTNAME" not in names
    assert len({engine.name for engine in ENGINES}) == len(ENGINES)

"""Ten thousand malformed environments: each is a valid cluster or a `ClusterError`, and nothing else."""

import json
import os
import time
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tfscale import ClusterError, resolve_cluster

TF_CONFIG = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}'

# What each variable holds when all is well; malformed values are these, cut, joined and mistyped.
GOOD = {
    "TF_CONFIG": [TF_CONFIG],
    "SLURM_PROCID": ["0", "1"],
    "SLURM_NTASKS": ["2", "3"],
    "SLURM_STEP_NUM_TASKS": ["2", "3"],
    "SLURM_STEP_ID": ["0", "4294967290"],
    "SLURM_JOB_ID": ["77"],
    "SLURM_STEP_NODELIST": ["n[08-09]", "a,b", "n1"],
    "SLURM_JOB_NODELIST": ["n[08-09]", "a[1-2]b[3-4]"],
    "SLURM_STEP_TASKS_PER_NODE": ["1(x2)", "2,1", "2"],
    "SLURM_DISTRIBUTION": ["block", "cyclic:block", "plane=2"],
    "SLURM_NODEID": ["0", "1"],
    "OMPI_COMM_WORLD_RANK": ["0", "1"],
    "OMPI_COMM_WORLD_SIZE": ["2", "3"],
    "OMPI_COMM_WORLD_LOCAL_SIZE": ["2", "3"],
    "PMIX_NAMESPACE": ["prterun-host-7@1"],
    "PMI_RANK": ["0", "1"],
    "PMI_SIZE": ["2", "3"],
    "MPI_LOCALNRANKS": ["2", "3"],
    "JOB_COMPLETION_INDEX": ["0", "1"],
    "HOSTNAME": ["train-0", "train-1"],
    "TFSCALE_HOSTS": ["a,b", "a:1,b:2,[::1]:3", "n[1-3]"],
    "TFSCALE_PORT": ["2222", "65535"],
    "TFSCALE_NUM_WORKERS": ["1", "2", "3"],
    "TFSCALE_SERVICE": ["workers"],
    "TFSCALE_ALONE": ["0", "1"],
    "SLURM_NNODES": ["1", "2"],
    "SLURM_STEP_NUM_NODES": ["1", "2"],
    "SKYPILOT_NODE_RANK": ["0", "1"],
    "SKYPILOT_NODE_IPS": ["10.0.0.1", "10.0.0.1\n10.0.0.2"],
    "SKYPILOT_NUM_NODES": ["1", "2"],
    "SM_HOSTS": ['["algo-1"]', '["algo-1","algo-2"]'],
    "SM_CURRENT_HOST": ["algo-1", "algo-2"],
    "VC_WORKER_HOSTS": ["train-0.train,train-1.train"],
    "VC_WORKER_NUM": ["2"],
    "VC_CHIEF_HOSTS": ["train-2.train"],
    "WORLD_SIZE": ["1", "2", "3"],
    "RANK": ["0", "1"],
    "LSB_MCPU_HOSTS": ["a 4", "a 4 b 4"],
    "PBS_NODEFILE": ["/etc/passwd", "/"],
    "PBS_NUM_NODES": ["1", "2"],
    "CLUSTER_SPEC": ['{"worker": ["a:1", "b:1"]}', '{"cluster": {"workerpool0": ["a:1"]}}'],
    "DET_ALLOCATION_ID": ["1"],
}
GROUPS = ("SLURM_", "OMPI_", "PMI_", "JOB_COMPLETION_INDEX", "TF_CONFIG", "SKYPILOT_", "SM_", "VC_", "WORLD", "LSB_")


DAMAGE = ["", "[", "]", "-", ",", "(x", "0", " ", "\n", "\u0663", "\0"]
ODD = ["-1", "10000000000", "1" * 5000, "1e3", "0x1", "1_0", "", "\ud800", "[" * 5000, "n[0-999999999]", "\x1b[2J" * 99]
MAX_CHARACTERS = 2000
MAX_S = 1.0


def value(random, name):
    good = random.choice(GOOD[name])
    at = random.randrange(len(good))
    return random.choice([good, good[:at] + random.choice(DAMAGE) + good[at + 1 :], random.choice(ODD)])


def environment(random):
    """A whole source, some variables left out, and some of any source added or replaced."""
    group = random.choice(GROUPS)
    names = [name for name in GOOD if name.startswith((group, "MPI_LOCAL", "TFSCALE", "HOSTNAME"))]
    kept = random.sample(names, max(0, len(names) - random.choice([0, 0, 1, 2, 9])))
    replaced = random.sample(sorted(GOOD), random.choice([0, 1, 2, 5]))
    return {name: random.choice(GOOD[name]) for name in kept} | {name: value(random, name) for name in replaced}


def check(environ):
    before = dict(environ), dict(os.environ)
    began_s = time.process_time()
    try:
        spec = resolve_cluster(environ)
    except ClusterError as error:
        assert "\nReceived: " in str(error), environ  # noqa: PT017
        assert str(error).endswith(".")  # noqa: PT017
        assert len(str(error)) <= MAX_CHARACTERS, environ  # noqa: PT017
        assert all(each.isprintable() or each == "\n" for each in str(error)), environ  # noqa: PT017
    else:
        assert 0 <= spec.rank < spec.num_workers == len(set(spec.workers))
        again = resolve_cluster({"TF_CONFIG": spec.to_tf_config()})
        assert (again.workers, again.rank) == (spec.workers, spec.rank)
    assert time.process_time() - began_s < MAX_S, environ
    assert (environ, dict(os.environ)) == before


# Hypothesis draws where to start; drawing each variable through it takes two minutes.
@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_any_environment_is_a_valid_cluster_or_refused(seed):
    random = Random(seed)
    for _ in range(100):
        check(environment(random))


def config(random):
    """A `TF_CONFIG` that is JSON, whatever else it is: any of its parts may be any other thing."""
    addresses = [
        f"host-{each}:{random.choice([1, 2222, 65535, 65536])}" for each in range(random.choice([1, 2, 9, 300]))
    ]
    task = {"type": "worker", "index": 0}
    whole = {"cluster": {"worker": addresses}, "task": task}
    places = [(whole, "cluster"), (whole, "task"), (whole["cluster"], "worker"), (task, "type"), (task, "index")]
    places += [(whole["cluster"], random.choice(["chief", "ps", "evaluator", "x" * 9000])), (addresses, 0)]
    deep = []
    for _ in range(random.choice([3, 300])):
        deep = [deep]
    for _ in range(random.choice([0, 1, 2])):
        holder, key = random.choice(places)
        things = [
            None,
            True,
            -1,
            10**400,
            1.5,
            "",
            "x" * 9000,
            "\x1b[2J",
            "a:1",
            [],
            ["a:1"],
            {},
            {"x" * 9000: "y" * 9000},
        ]
        holder[key] = random.choice([*things, deep])
    text = json.dumps(whole)
    return text if random.random() < 0.9 else text[: random.randrange(len(text))]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_any_tf_config_is_a_valid_cluster_or_refused(seed):
    random = Random(seed)
    for _ in range(20):
        check({"TF_CONFIG": config(random)})

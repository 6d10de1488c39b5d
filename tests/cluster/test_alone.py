"""`TFSCALE_ALONE=1` is the way round every error that says that there must be others."""

import json
import logging

import pytest

from tests.cluster.refusal import assert_refused
from tests.cluster.test_engines import AWS, SAGEMAKER, SKYPILOT, TORCHRUN, VOLCANO
from tests.cluster.test_kubernetes import POD
from tests.cluster.test_slurm import STEP
from tfscale import ClusterError, resolve_cluster

TWO = {"worker": ["a:1", "b:1"]}


def tf_config(type_, index=0, cluster=TWO):
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": type_, "index": index}})}


SEVERAL = [
    STEP,
    POD,
    SKYPILOT,
    SAGEMAKER,
    VOLCANO,
    AWS,
    TORCHRUN,
    {"SLURM_NNODES": "2"},
    {"SLURM_NTASKS": "4"},
    {"SLURM_STEP_ID": "0"},
    {"OMPI_COMM_WORLD_RANK": "0"},
    {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3"},
    {"PMI_SIZE": "2"},
    {"MPI_LOCALNRANKS": "2"},
    {"JOB_COMPLETION_INDEX": "0"},
    {"LSB_HOSTS": "a b"},
    {"TFSCALE_HOSTS": "a,b"},
    # An evaluator may have a script of its own.
    tf_config("evaluator"),
    tf_config("worker", cluster={"worker": ["a:1"]}),
]


@pytest.mark.parametrize("environ", SEVERAL)
def test_alone_among_others(environ):
    spec = resolve_cluster({**environ, "TFSCALE_ALONE": "1"})
    assert (spec.source, spec.num_workers) == ("this machine", 1)


@pytest.mark.parametrize("environ", [each for each in SEVERAL if "TF_CONFIG" not in each])
@pytest.mark.parametrize("value", ["0", ""])
def test_not_alone(environ, value):
    def outcome(environ):
        try:
            return resolve_cluster(environ)
        except ClusterError as error:
            return str(error)

    assert outcome({**environ, "TFSCALE_ALONE": value}) == outcome(environ)


@pytest.mark.parametrize("value", ["2", "yes", "True", " 1", "\x1b[2J"])
def test_value(value):
    assert_refused({"TFSCALE_ALONE": value}, "`TFSCALE_ALONE` must be 1")


def test_nobody_waits_for_a_worker_that_trains_alone():
    assert_refused({**tf_config("worker", 1), "TFSCALE_ALONE": "1"}, "contradict", "TF_CONFIG for worker 1 of 2")


@pytest.mark.parametrize(
    ("environ", "chosen", "ignored"),
    [
        ({**STEP, "TFSCALE_ALONE": "1"}, "worker 0 of 1, from this machine", "Slurm (worker 5 of 7)"),
        ({**STEP, **SKYPILOT}, "worker 5 of 7, from Slurm", "SkyPilot (worker 1 of 2)"),
        ({**STEP, **tf_config("worker", 1)}, "worker 1 of 2, from TF_CONFIG", "Slurm (worker 5 of 7)"),
        ({**STEP, "PMI_RANK": "5", "PMI_SIZE": "7"}, "worker 5 of 7, from Slurm", "PMI (by half, or without hosts)"),
        ({**tf_config("worker", 1), **TORCHRUN}, "from TF_CONFIG", "the table of engines (by half"),
    ],
)
def test_what_is_not_looked_at_is_logged(environ, chosen, ignored, caplog):
    with caplog.at_level(logging.INFO, "tfscale"):
        resolve_cluster(environ)
    [message] = [record.getMessage() for record in caplog.records]
    assert chosen in message
    assert f"not looked at: the variables of {ignored}" in message


def test_one_engine_is_not_worth_a_line(caplog):
    with caplog.at_level(logging.INFO, "tfscale"):
        for environ in (STEP, POD, SKYPILOT, {}, tf_config("worker")):
            resolve_cluster(environ)
    assert caplog.records == []

"""The cluster in `TF_CONFIG`, the variable that TensorFlow and most cluster managers use.

Its value is a JSON object with two entries: `cluster`, the addresses of each job, and `task`, the
job and index of this process. The job `worker` trains; a job `chief`, of one process, trains as
rank 0 and the workers follow it. Other entries, which cluster managers add, are not looked at.

Reference:
    https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
"""

import json
from collections.abc import Mapping
from typing import Any

from tfscale.cluster.shown import printable, quoted
from tfscale.cluster.spec import ClusterSpec
from tfscale.cluster.variables import ALONE
from tfscale.errors import ClusterError

_NAME = "TF_CONFIG"
_JOBS = ("chief", "worker")  # in the order of their ranks
_EVALUATOR = "evaluator"
_EXAMPLE = '{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": {"type": "worker", "index": 0}}'


class EvaluatorError(ClusterError):
    """This process is the evaluator of a job: its workers train, and do not wait for it."""


def read(environ: Mapping[str, str]) -> ClusterSpec | None:
    """Reads `TF_CONFIG`; returns None when it is not set.

    Raises:
        EvaluatorError: The task is an evaluator, which is in no list of workers.
        ClusterError: `TF_CONFIG` is set, but does not name the workers and which of them this is.
    """
    if _NAME not in environ:
        return None
    config = _parse(environ[_NAME])
    jobs = _read_jobs(_entry(config, "cluster"))
    job, index = _read_task(_entry(config, "task"), jobs)
    workers = tuple(address for name in _JOBS for address in jobs.get(name, []))
    preceding = _JOBS[: _JOBS.index(job)]
    rank = index + sum(len(jobs.get(name, [])) for name in preceding)
    return ClusterSpec(workers=workers, rank=rank, source=_NAME)


def _parse(text: str) -> dict[str, Any]:
    way_out = f"Unset it to train on this machine alone, or set it to, for example, {_EXAMPLE}."
    try:
        config = json.loads(text)
    # The parser recurses once per level of nesting.
    except (ValueError, RecursionError) as error:
        raise ClusterError(
            f"`TF_CONFIG` must be JSON ({printable(str(error), 200)}).\nReceived: {quoted(text)}. {way_out}"
        ) from error
    if not isinstance(config, dict):
        raise ClusterError(f"`TF_CONFIG` must be a JSON object.\nReceived: {quoted(text)}. {way_out}")
    return config


def _entry(config: dict[str, Any], key: str) -> dict[str, Any]:
    value = config.get(key)
    if not isinstance(value, dict):
        received = f"{key}={quoted(value)}" if key in config else f"only {quoted(sorted(config))}"
        raise ClusterError(
            f"`TF_CONFIG` must have an object under '{key}'.\n"
            f"Received: {received}. "
            f"Unset TF_CONFIG to train on this machine alone, or complete it: {_EXAMPLE}."
        )
    return value


def _read_jobs(cluster: dict[str, Any]) -> dict[str, list[Any]]:
    """Checks the lists of addresses; the addresses themselves are checked by `ClusterSpec`."""
    if not cluster:
        raise ClusterError(
            f"`TF_CONFIG` must list the workers under 'cluster'.\n"
            f"Received: cluster={{}}. List their addresses, for example {_EXAMPLE}."
        )
    for job, addresses in cluster.items():
        if job not in _JOBS:
            raise ClusterError(
                f"The jobs in `TF_CONFIG` must be 'worker' and, if any, 'chief': every process "
                f"trains.\n"
                f"Received: cluster with {quoted(sorted(cluster))}. "
                f"Leave {quoted(job)} out; parameter servers and evaluators take no part."
            )
        if not isinstance(addresses, list) or not addresses:
            raise ClusterError(
                f"A job in `TF_CONFIG` must be a list of at least one address.\n"
                f"Received: {job}={quoted(addresses)}. "
                f"List its addresses, for example ['10.0.0.1:2222'], or leave the job out."
            )
    if len(cluster.get("chief", [])) > 1:
        raise ClusterError(
            f"`TF_CONFIG` must have one chief at most.\n"
            f"Received: chief={quoted(cluster['chief'])}. List the others under 'worker'."
        )
    return cluster


def _read_task(task: dict[str, Any], jobs: dict[str, list[Any]]) -> tuple[str, int]:
    """Returns the job of this process and its index in that job."""
    job = task.get("type")
    if not isinstance(job, str) or job not in jobs:
        way_out = "Set its type to the job that lists the address of this process."
        kind = ClusterError
        if job in (_EVALUATOR, "ps"):
            way_out = f"Do not start a task of type {job!r}: parameter servers and evaluators take no part."
        if job == _EVALUATOR:
            way_out += f" To evaluate in it by a script of its own, set {ALONE}=1."
            kind = EvaluatorError
        raise kind(
            f"The task's type in `TF_CONFIG` must be one of the jobs in its cluster, "
            f"{sorted(jobs)}.\n"
            f"Received: task={quoted(task)}. {way_out}"
        )
    index = task.get("index")
    # bool is an int to Python, and so is not told apart by isinstance.
    if type(index) is not int or not 0 <= index < len(jobs[job]):
        raise ClusterError(
            f"The task's index in `TF_CONFIG` must be an integer from 0 to {len(jobs[job]) - 1}: "
            f"its cluster lists {len(jobs[job])} of job {job!r}.\n"
            f"Received: task={quoted(task)}. "
            f"Give every process its own index, or list the addresses that are missing."
        )
    return job, index

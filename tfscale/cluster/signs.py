"""Has this job several hosts, of which one process alone would use one?

A batch system gives a job its hosts and starts one process on the first of them: the others do nothing, or somebody
forgot the program that starts the workers. These signs are looked at when no process of a launcher was found.

References:
    https://www.ibm.com/docs/en/spectrum-lsf/10.1.0?topic=variables-environment-set-job-execution
    https://gridscheduler.sourceforge.net/htmlman/htmlman1/submit.html
    https://cloud.google.com/vertex-ai/docs/training/distributed-training
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfscale.cluster.addresses import HOSTS
from tfscale.cluster.shown import quoted
from tfscale.cluster.variables import WAY_ROUND
from tfscale.errors import ClusterError

_MOST_BYTES = 1 << 20
_DETERMINED = Path("/run/determined/info/rendezvous.json")
_SAGEMAKER = Path("/opt/ml/input/config/resourceconfig.json")


@dataclass(frozen=True)
class Sign:
    """Variables of one batch system.

    Args:
        system: Its name.
        counts: By variable, how its value tells the number of hosts; None where it does not. The first that tells it
            counts.
        step: A variable that a process of its launcher has: that knows more than the allocation.
    """

    system: str
    counts: Mapping[str, Callable[[str], int | None]]
    step: str = ""


def check(environ: Mapping[str, str]) -> None:
    """Refuses to train alone where a batch system has given the job several hosts.

    Raises:
        ClusterError: It has.
    """
    for sign in SIGNS:
        if sign.step in environ:
            continue
        told = ((name, count(environ[name])) for name, count in sign.counts.items() if environ.get(name))
        name, number = next(((name, number) for name, number in told if number is not None), ("", 0))
        if number > 1:
            raise ClusterError(
                f"{sign.system} has given this job {number} hosts or processes, and one process alone would use one.\n"
                f"Received: {name}={quoted(environ[name])}; missing: a variable that tells which worker this is. "
                f"Start one worker per host, with `mpirun -x {HOSTS}=a,b ...` or with `tfscale launch --hosts a,b ...` "
                f"on each, or set TF_CONFIG. {WAY_ROUND}"
            )


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None


def _names(text: str) -> int | None:
    """Counts the different names in a list."""
    return len(set(re.split(r"[\s,;]+", text.strip(" \t\r\n,;"))))


def _names_with_slots(text: str) -> int | None:
    """Counts the different names of a list such as `host1 4 host2 4`."""
    return len(set(text.split()[::2]))


def _lines(path: str) -> int | None:
    """Counts the different hosts in a file that has one per line."""
    text = _text(Path(path)) if "\0" not in path else ""
    return len({line.split()[0] for line in text.splitlines() if line.strip()}) or None


def _addresses(text: str) -> int | None:
    """Counts the addresses in the JSON of a `CLUSTER_SPEC`."""
    spec = _json(text)
    jobs = spec.get("cluster", spec) if isinstance(spec, dict) else None
    if not isinstance(jobs, dict):
        return None
    return sum(len(each) for each in jobs.values() if isinstance(each, list))


def _listed(path: Path, key: str) -> Callable[[str], int | None]:
    """Returns what counts the hosts that are listed in a file of JSON, where the file is there."""

    def count(_: str) -> int | None:
        config = _json(_text(path))
        hosts = config.get(key) if isinstance(config, dict) else None
        return len(hosts) if isinstance(hosts, list) else None

    return count


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _text(path: Path) -> str:
    """Returns the begin of a file; nothing where it cannot be read."""
    try:
        # A pipe would be waited for.
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""


SIGNS = (
    Sign("LSF", {"LSB_MCPU_HOSTS": _names_with_slots, "LSB_HOSTS": _names}, step="JSM_NAMESPACE_SIZE"),
    Sign("PBS", {"PBS_NODEFILE": _lines, "PBS_NUM_NODES": _number}),
    Sign("Grid Engine", {"NHOSTS": _number}),
    Sign("OAR", {"OAR_NODEFILE": _lines, "OAR_NODE_FILE": _lines}),
    Sign("Cobalt", {"COBALT_NODEFILE": _lines, "COBALT_JOBSIZE": _number}),
    Sign("Fujitsu TCS", {"PJM_NODE": _number}),
    Sign("Azure Batch", {"AZ_BATCH_HOST_LIST": _names, "AZ_BATCH_NODE_LIST": _names}),
    Sign("Vertex AI or TonY", {"CLUSTER_SPEC": _addresses}),
    Sign("Determined", {"DET_ALLOCATION_ID": _listed(_DETERMINED, "container_addrs")}),
    Sign("SageMaker", {"TRAINING_JOB_ARN": _listed(_SAGEMAKER, "hosts")}),
)

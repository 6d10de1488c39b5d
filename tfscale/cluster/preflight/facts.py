"""What must be equal on all workers, and what is not?"""

import hashlib
import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from tfscale.cluster.shown import distinct

ARGUMENTS = "script arguments"
INFORM_ONLY = frozenset({ARGUMENTS})
"""Facts that may differ: programs are told their rank, or a port, by their arguments. What changes the result (batch,
seed, devices, versions) is a fact of its own."""
GPUS = "GPUs"
"""The UUIDs of a worker's GPUs: no two workers may have one in common. A worker that cannot tell says nothing."""
WORKERS = "list of workers"

# TensorFlow has several names; the first that is installed is the one that is imported.
_PACKAGES = {
    "tfscale": ("tfscale",),
    "TensorFlow": ("tensorflow", "tensorflow-cpu", "tf-nightly", "tf-nightly-cpu"),
    "Keras": ("keras", "keras-nightly"),
}
_SHOWN_CHARACTERS = 300
_VALUE_CHARACTERS = 400
_NAME_CHARACTERS = 100
_MAX_FACTS = 64


def gather_facts(argv: Sequence[str]) -> dict[str, str]:
    """Returns what every worker knows of itself before it loads TensorFlow, by name.

    Args:
        argv: The script and its arguments. Only their number and a hash are told: they may hold secrets.

    Example:
        >>> from tfscale.cluster.preflight import gather_facts
        >>> sorted(gather_facts(["train.py"]))
        ['Keras', 'Python', 'TensorFlow', 'script arguments', 'tfscale']
    """
    facts = {name: installed_version(name) or "not installed" for name in _PACKAGES}
    # The last part of a version changes nothing between workers.
    facts["Python"] = ".".join(platform.python_version_tuple()[:2])
    digest = hashlib.sha256("\0".join(argv[1:]).encode(errors="surrogateescape")).hexdigest()
    facts[ARGUMENTS] = f"{len(argv[1:])} with hash {digest[:12]}"
    return facts


def shape_facts(facts: Mapping[str, str]) -> dict[str, str]:
    """Returns facts as they travel, and as they are shown: short, and different where they were different."""
    return {distinct(name, _NAME_CHARACTERS): distinct(value, _VALUE_CHARACTERS) for name, value in facts.items()}


def read_facts(received: Any) -> dict[str, str] | None:
    """Returns the facts that another worker sent, shaped; None where they are none."""
    if not isinstance(received, dict) or len(received) > _MAX_FACTS:
        return None
    return shape_facts(received) if all(isinstance(each, str) for each in received.values()) else None


def installed_version(package: str) -> str | None:
    """Returns the version of "tfscale", "TensorFlow" or "Keras" without importing it; None where it is missing."""
    for name in _PACKAGES[package]:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def describe_workers(workers: Sequence[str]) -> str:
    """Returns the list of workers, short enough for a message, and different for different lists."""
    text = ", ".join(workers)
    if len(text) <= _SHOWN_CHARACTERS:
        return f"[{text}]"
    return f"[{text[:_SHOWN_CHARACTERS]} ...], {len(workers)} in all, hash {hash_workers(workers)}"


def hash_workers(workers: Sequence[str]) -> str:
    """Returns what tells this list of workers from others."""
    return hashlib.sha256("\0".join(workers).encode()).hexdigest()[:16]


def gpus_of(facts: Mapping[str, str]) -> list[str]:
    """Returns the GPUs that a worker has named.

    Example:
        >>> from tfscale.cluster.preflight.facts import GPUS, gpus_of
        >>> gpus_of({GPUS: "GPU-aa01 GPU-bb02"}), gpus_of({})
        (['GPU-aa01', 'GPU-bb02'], [])
    """
    return facts.get(GPUS, "").split()


def find_disagreements(own: Mapping[str, str], others: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Returns name, the other's value and the own value of each fact that differs; a missing one shows as "not given".

    `GPUS` are to differ, and are left out.

    Example:
        >>> from tfscale.cluster.preflight.facts import find_disagreements
        >>> find_disagreements({"seed": "1", "Keras": "3.15.1"}, {"seed": "2", "Keras": "3.15.1"})
        [('seed', '2', '1')]
    """
    names = [name for name in (*own, *(name for name in others if name not in own)) if name != GPUS]
    pairs = [(name, others.get(name, "not given"), own.get(name, "not given")) for name in names]
    return [(name, other, mine) for name, other, mine in pairs if other != mine]

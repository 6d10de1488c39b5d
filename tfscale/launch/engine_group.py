"""How do workers that an engine has started become one job?

What the engine's group of workers can do is given (Ray's, so far): nothing here needs the engine itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tfscale.cluster import ClusterSpec
from tfscale.cluster.secret import SECRET, make_secret
from tfscale.launch.cores import count_threads
from tfscale.launch.ports import free_addresses

_ANSWER_S = 5.0
# A survivor knows in that time whom it misses.
_SPEAK_S = 15.0


class WorkerGroup(Protocol):
    """What Ray gives to a backend, as far as it is used."""

    def __len__(self) -> int:
        """How many workers there are."""

    def execute(self, func: Callable[..., Any], *args: Any) -> list[Any]:
        """Returns what a function returns on each worker, in the order of their ranks."""

    def execute_single_async(self, worker_index: int, func: Callable[..., Any], *args: Any) -> Any:
        """Starts a function on one worker."""


def join_workers(
    group: WorkerGroup,
    engine: str,
    *,
    host_of: Callable[[], str],
    cores_of: Callable[[], int | None],
    wait: Callable[[Any], Any],
) -> None:
    """Gives each worker of a group its place in one job.

    Args:
        group: The workers.
        engine: Its name.
        host_of: Called by a worker: the address of its host, as the others reach it.
        cores_of: Called by a worker: how many cores are its own; None leaves its threads to TensorFlow.
        wait: Returns the results of what was started.
    """
    hosts = group.execute(host_of)
    # One worker of each host names the ports of all: two that look at a time may find the same one.
    ranks: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        ranks.setdefault(host, []).append(rank)
    found = wait([group.execute_single_async(own[0], _find_addresses, len(own), host) for host, own in ranks.items()])
    addresses = dict(
        pair for own, some in zip(ranks.values(), found, strict=True) for pair in zip(own, some, strict=True)
    )
    workers = tuple(addresses[rank] for rank in range(len(group)))
    secret = make_secret()
    specs = [ClusterSpec(workers, rank, source=engine) for rank in range(len(group))]
    wait(
        [
            group.execute_single_async(spec.rank, _join, {"TF_CONFIG": spec.to_tf_config(), SECRET: secret}, cores_of)
            for spec in specs
        ]
    )


def _find_addresses(count: int, host: str) -> Sequence[str]:
    return free_addresses(count, host=host)


def _join(settings: dict[str, str], cores_of: Callable[[], int | None]) -> None:
    os.environ.update(settings)
    cores = cores_of()
    if cores is not None:
        os.environ.update(count_threads(os.environ, cores))


def hear_last_words(
    group: WorkerGroup,
    *,
    speak: Callable[[float], str | None],
    wait_some: Callable[[Sequence[Any], float], dict[int, Any]],
) -> dict[str, list[int]]:
    """Returns what the workers say of one that is gone, with the ranks of who says it; nothing where all are there.

    An engine that misses a worker ends the others, often before they have found out whom they miss, and who reads the
    output has but the engine's word for it.

    Args:
        group: The workers, of whom some may be gone.
        speak: Called by a worker: what it has to say, once it has found out, or after so many seconds.
        wait_some: Waits so many seconds for what was started, and returns the results of those who answer, by place.
    """
    ranks = range(len(group))
    here = wait_some([group.execute_single_async(rank, _answer) for rank in ranks], _ANSWER_S)
    if len(here) == len(group):
        return {}
    left = sorted(here)
    said = wait_some([group.execute_single_async(rank, speak, _SPEAK_S) for rank in left], _SPEAK_S + _ANSWER_S)
    words: dict[str, list[int]] = {}
    for place, text in sorted(said.items()):
        if text:
            words.setdefault(text, []).append(left[place])
    return words


def _answer() -> bool:
    return True

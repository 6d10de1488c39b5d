"""Why is a worker not there yet, and what can be done about it?"""

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass

from tfscale.cluster.preflight.facts import describe_workers
from tfscale.cluster.shown import quoted


@dataclass(frozen=True)
class Reason:
    """Why a worker could not be reached.

    Args:
        text: What was met.
        way_out: What to do.
        is_lasting: Whether waiting does not help: the job was described wrongly.
    """

    text: str
    way_out: str
    is_lasting: bool = False


NOT_TRIED = Reason("it was not tried yet", "Start it.")
LOOKING_UP = Reason(
    "the name server has not answered yet", "Check the name server, or give the worker's IP address instead."
)
NO_ANSWER = Reason(
    "no answer from its host", "Check that the host is up, and that no firewall closes the port to this host."
)
SILENT = Reason(
    "something accepted the connection and said nothing",
    "Look whether that worker is stopped or swapped out, or whether another program has its port.",
)
STRANGER = Reason(
    "something else listens there: another program, or a worker that trains already",
    "End it, or give the job another port.",
)
NOT_HEARD = Reason(
    "it answers, and has not reached this worker",
    "Read its output, and check that no firewall closes this worker's port to its host.",
)
OTHER_JOB = Reason(
    "a worker answered that has another list of workers",
    "Give every worker of the job the same list, in the same order.",
    is_lasting=True,
)
_OWN_ONLY = "a process answered that has no TFSCALE_SECRET, and this worker has one"
_OTHERS_ONLY = "a process answered that has a TFSCALE_SECRET, and this worker has none"
_BOTH = "a process answered that has another TFSCALE_SECRET than this worker"


def other_secret(workers: tuple[str, ...], *, is_given: bool, has_secret: bool) -> Reason:
    """The process at a worker's address does not take the signature of this one.

    Args:
        workers: The list of workers that this one has.
        is_given: Whether this worker was given a secret.
        has_secret: Whether the other one says that it was.
    """
    if not is_given and not has_secret:
        # What they have in place of a secret follows from the list.
        way_out = f"{OTHER_JOB.way_out} This worker has {describe_workers(workers)}."
        return Reason(OTHER_JOB.text, way_out, is_lasting=True)
    text = _BOTH if is_given and has_secret else _OWN_ONLY if is_given else _OTHERS_ONLY
    return Reason(
        text, "Set TFSCALE_SECRET to the same value for every worker of the job, or for none.", is_lasting=True
    )


def other_rank(rank: object, is_itself: bool) -> Reason:
    """The process at a worker's address takes itself for another worker."""
    named = quoted(rank, 20)
    who = "leads back to this very process" if is_itself else f"leads to a process that says it is worker {named}"
    return Reason(
        f"its address {who}",
        "Give every worker its own rank, and the addresses in the order of the ranks.",
        is_lasting=True,
    )


def unknown_name(error: str) -> Reason:
    """Its host's name leads nowhere."""
    return Reason(
        f"its host name is not known here ({error})", "Correct the name, or give the worker's IP address instead."
    )


def failed_connect(number: int) -> Reason:
    """What an error number of `connect` means for the user."""
    if number == errno.ECONNREFUSED:
        return Reason(
            "connection refused, nothing listens there",
            "Start it, or read its output.",
        )
    if number == errno.ETIMEDOUT:
        return NO_ANSWER
    return Reason(os.strerror(number), "Check its address, and the network between the two hosts.")


def describe_absence(
    own_rank: int,
    workers: tuple[str, ...],
    absent: dict[int, Reason],
    timeout_s: float,
    there: Sequence[int] = (),
) -> str:
    """Returns the message of an error: which workers were not there in time, and why.

    Args:
        own_rank: The worker that has waited.
        workers: All addresses.
        absent: Of each worker that is missing, why. One at least.
        timeout_s: How long it waited.
        there: Who has answered.

    Example:
        >>> from tfscale.cluster.preflight.reasons import describe_absence, failed_connect
        >>> print(describe_absence(0, ("a:1", "b:1", "c:1"), {2: failed_connect(111)}, 60, [1]))
        Worker 2 (c:1) did not answer within 60 s; worker 1 did.
        Received by worker 0 (a:1): connection refused, nothing listens there. Start it, or read its output.
    """
    others = [rank for rank in there if rank not in absent]
    who = ", ".join(f"{rank} ({workers[rank]})" for rank in list(absent)[:_SHOWN])
    more = f" and {len(absent) - _SHOWN} more" if len(absent) > _SHOWN else ""
    present = f"; {_plural(others)} did" if others else ""
    by_text: dict[str, list[int]] = {}
    for rank, reason in absent.items():
        by_text.setdefault(reason.text, []).append(rank)
    if len(by_text) == 1:
        seen = next(iter(by_text))
    else:
        seen = "; ".join(f"{_plural(ranks)}: {text}" for text, ranks in list(by_text.items())[:_SHOWN])
    ways_out = dict.fromkeys(reason.way_out for reason in absent.values())
    missing = f"Worker{'s' if len(absent) > 1 else ''} {who}{more}"
    if all(reason.is_lasting for reason in absent.values()):
        rule = f"{missing} must be found at the address given for it"
    else:
        rule = f"{missing} did not answer within {timeout_s:g} s{present}"
    return f"{rule}.\nReceived by worker {own_rank} ({workers[own_rank]}): {seen}. {' '.join(list(ways_out)[:2])}"


def describe_unreached(workers: tuple[str, ...], misses: Sequence[tuple[int, int, str]]) -> str:
    """Returns the message for workers that are there but do not reach each other; nothing where all do.

    Args:
        workers: All addresses.
        misses: A worker, the one that it does not reach, and why.

    Example:
        >>> from tfscale.cluster.preflight.reasons import describe_unreached
        >>> print(describe_unreached(("a:1", "b:1", "c:1"), [(1, 2, "no answer from its host")]))
        Every worker must reach all others.
        Received: worker 1 (b:1) does not reach worker 2 (c:1): no answer from its host. Check firewalls and host \
names between those hosts.
    """
    if not misses:
        return ""
    lines = [
        f"worker {rank} ({workers[rank]}) does not reach worker {other} ({workers[other]}): {text}"
        for rank, other, text in misses[:_SHOWN]
    ]
    return (
        f"Every worker must reach all others.\nReceived: {'; '.join(lines)}. "
        f"Check firewalls and host names between those hosts."
    )


_SHOWN = 5


def _plural(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"worker {ranks[0]}"
    if len(ranks) > 2 * _SHOWN:
        return f"{len(ranks)} workers"
    return f"workers {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"

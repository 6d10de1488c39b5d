"""How does a worker say that it ended because of another one, and who reads it?"""

import re
from collections.abc import Iterable

_RULE = "All workers must take part in every step."
_BLAME = re.compile(rf"{re.escape(_RULE)}\nReceived: worker ([0-9]{{1,6}}) ")
_MAX_CHARACTERS = 2000


def describe_peer_failure(rank: int, message: str, address: str = "", place: str = "") -> str:
    """Returns the message of a worker's error when the worker of another rank has failed.

    Args:
        rank: Of the worker that failed.
        message: What it said.
        address: Of that worker, where it is known.
        place: Where it was, likewise.

    Example:
        >>> from tfscale.cluster.peer_failure import describe_peer_failure
        >>> print(describe_peer_failure(1, "ValueError: no more data", "10.0.0.7:2222", "in step 2 of `fit`"))
        All workers must take part in every step.
        Received: worker 1 (10.0.0.7:2222) failed with ValueError: no more data. Heard of last in step 2 of `fit`. \
Its own output has the whole of it. Start all workers again.
    """
    who = f"worker {rank} ({address})" if address else f"worker {rank}"
    last = f" Heard of last {place}." if place else ""
    said = message.rstrip(".: ")
    return describe_end(f"{who} failed with {said}.{last} Its own output has the whole of it. Start all workers again.")


def describe_end(received: str) -> str:
    """Returns the message of a worker's error when the job cannot go on.

    Args:
        received: Begins with the worker that it is about: `"worker 3 ..."`.
    """
    return f"{_RULE}\nReceived: {_printable(received)[:_MAX_CHARACTERS]}"


def find_blamed(lines: Iterable[str]) -> int | None:
    """Returns the rank of the worker that another one's last lines blame; None when they blame nobody.

    Example:
        >>> from tfscale.cluster.peer_failure import describe_peer_failure, find_blamed
        >>> find_blamed(describe_peer_failure(1, "ValueError: no more data").splitlines())
        1
    """
    blamed = _BLAME.search("\n".join(lines))
    return int(blamed[1]) if blamed else None


def _printable(text: str) -> str:
    """Without what would move the cursor of a terminal: it may come from another process."""
    return "".join(each if each.isprintable() or each == "\n" else " " for each in text)

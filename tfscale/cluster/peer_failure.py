"""How does a worker say that it ended because another one failed, and who reads it?"""

import re
from collections.abc import Iterable

_RULE = "All workers must take part in every step."
_BLAME = re.compile(rf"{re.escape(_RULE)}\nReceived: worker ([0-9]{{1,6}}) failed with ")


def describe_peer_failure(rank: int, message: str) -> str:
    """Returns the message of a worker's error when the worker of another rank has failed.

    Example:
        >>> from tfscale.cluster.peer_failure import describe_peer_failure
        >>> print(describe_peer_failure(1, "ValueError: no more data"))
        All workers must take part in every step.
        Received: worker 1 failed with ValueError: no more data. Its own output has the whole of it.
    """
    return f"{_RULE}\nReceived: worker {rank} failed with {message}. Its own output has the whole of it."


def find_blamed(lines: Iterable[str]) -> int | None:
    """Returns the rank of the worker that another one's last lines blame; None when they blame nobody.

    Example:
        >>> from tfscale.cluster.peer_failure import describe_peer_failure, find_blamed
        >>> find_blamed(describe_peer_failure(1, "ValueError: no more data").splitlines())
        1
    """
    blamed = _BLAME.search("\n".join(lines))
    return int(blamed[1]) if blamed else None

"""How many may knock at a worker's port without saying who they are, and for how long?"""

import selectors
from collections import Counter
from collections.abc import Callable

from tfscale.cluster.preflight.connection import Connection

_STRANGER_S = 5.0
_MAX_STRANGERS = 128
# Where all workers of a large job come at once.
_MOST_STRANGERS = 512
_CROWDED_S = 20.0


class Strangers:
    """The connections that were made to this worker and have not shown yet that they are of the job.

    Each has 5 s, in a job of more than 128 workers 20 s. When there are too many, the host that has most of them loses
    its oldest: a flood from one host takes the places of its own, not those of the workers on others.

    Args:
        selector: Tells when one of them has sent something.
        on_message: Called with it then.
        clock: Seconds, from anywhere.
        num_workers: Of the job: there are 128 places, and in a job of more workers as many as those, up to 512.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        on_message: Callable[[Connection], None],
        clock: Callable[[], float],
        num_workers: int,
    ):
        self._time_s = _STRANGER_S if num_workers <= _MAX_STRANGERS else _CROWDED_S
        self._places = min(max(_MAX_STRANGERS, num_workers), _MOST_STRANGERS)
        self._selector = selector
        self._on_message = on_message
        self._clock = clock
        # Of each, its host; the oldest first.
        self._hosts: dict[Connection, str] = {}

    def add(self, stranger: Connection, host: str) -> None:
        """Takes one in, for a while."""
        stranger.expires_s = self._clock() + self._time_s
        self._hosts[stranger] = host
        self._selector.register(stranger.socket, selectors.EVENT_READ, lambda: self._hear(stranger))
        if len(self._hosts) > self._places:
            self.dismiss_one()

    def tick(self) -> None:
        """Takes leave of those whose time is up."""
        now_s = self._clock()
        for stranger in [each for each in self._hosts if each.expires_s is not None and each.expires_s < now_s]:
            self.dismiss(stranger)

    def release(self, stranger: Connection) -> None:
        """Lets one go that is none any more; its connection stays."""
        del self._hosts[stranger]
        self._selector.unregister(stranger.socket)

    def dismiss(self, stranger: Connection) -> None:
        """Ends the connection of one."""
        self.release(stranger)
        stranger.close()

    def dismiss_one(self) -> bool:
        """Ends the oldest connection of the host that has most; False where there is none."""
        if not self._hosts:
            return False
        [(crowded, _)] = Counter(self._hosts.values()).most_common(1)
        self.dismiss(next(stranger for stranger, host in self._hosts.items() if host == crowded))
        return True

    def dismiss_all(self) -> None:
        """Ends the connections of all."""
        for stranger in list(self._hosts):
            self.dismiss(stranger)

    def _hear(self, stranger: Connection) -> None:
        # Another's message of the same look may have been the reason to dismiss it.
        if stranger in self._hosts:
            self._on_message(stranger)

"""Workers that meet: threads of this process, each with its own port on the loopback."""

import threading
import time

from tfscale import ClusterError, ClusterSpec
from tfscale.cluster.preflight import meet
from tfscale.launch.ports import free_addresses


class Worker:
    """One worker that tries to meet the others; `error` is its message, empty when all met."""

    def __init__(self, addresses, rank, facts=None, *, timeout_s=20.0, delay_s=0.0):
        self.error = ""
        self.start_s = self.took_s = 0.0
        self._thread = threading.Thread(target=self._run, args=(addresses, rank, facts or {}, timeout_s, delay_s))
        self._thread.start()

    def join(self):
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self

    def _run(self, addresses, rank, facts, timeout_s, delay_s):
        time.sleep(delay_s)
        self.start_s = time.monotonic()
        try:
            meet(ClusterSpec(tuple(addresses), rank), facts, timeout_s=timeout_s)
        except ClusterError as error:
            self.error = str(error)
        self.took_s = time.monotonic() - self.start_s


def run_all(num_workers, ranks=None, facts=None, **options):
    """Returns the addresses, and the workers of some ranks when they are done."""
    addresses = free_addresses(num_workers)
    ranks = range(num_workers) if ranks is None else ranks
    workers = [Worker(addresses, rank, (facts or {}).get(rank), **options) for rank in ranks]
    return addresses, [worker.join() for worker in workers]

"""Workers that meet: threads of this process, each with its own port on the loopback."""

import threading
import time

from tfscale import ClusterError, ClusterSpec
from tfscale.cluster.preflight import meet
from tfscale.cluster.secret import read_secret
from tfscale.launch.ports import free_addresses


def given(secret):
    return read_secret({"TFSCALE_SECRET": secret}, ())


class Worker:
    """One worker that tries to meet the others; `error` is its message, empty when all met."""

    def __init__(self, addresses, rank, facts=None, *, timeout_s=20.0, delay_s=0.0, secret=None):
        self.error = ""
        self.start_s = self.took_s = 0.0
        how = {"timeout_s": timeout_s, "secret": None if secret is None else given(secret)}
        self._thread = threading.Thread(target=self._run, args=(addresses, rank, facts or {}, delay_s, how))
        self._thread.start()

    def join(self):
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self

    def _run(self, addresses, rank, facts, delay_s, how):
        time.sleep(delay_s)
        self.start_s = time.monotonic()
        try:
            meet(ClusterSpec(tuple(addresses), rank), facts, **how)
        except ClusterError as error:
            self.error = error.args[0]
        self.took_s = time.monotonic() - self.start_s


def run_all(num_workers, ranks=None, facts=None, **options):
    """Returns the addresses, and the workers of some ranks when they are done."""
    addresses = free_addresses(num_workers)
    ranks = range(num_workers) if ranks is None else ranks
    workers = [Worker(addresses, rank, (facts or {}).get(rank), **options) for rank in ranks]
    return addresses, [worker.join() for worker in workers]

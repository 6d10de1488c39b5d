"""The facts about a job's workers."""

import json
import re
from dataclasses import dataclass

from tfscale.cluster.shown import quoted
from tfscale.errors import ClusterError

# A host name, an IPv4 address, or an IPv6 address in brackets; then the port.
# No name is longer, and a name that moves a terminal's cursor is none.
_ADDRESS = re.compile(r"(?:[^\s:/@,\[\]\x00-\x1f\x7f-\x9f]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})")


@dataclass(frozen=True)
class ClusterSpec:
    """The workers of a job, in the order of their ranks, and the rank of this one.

    Args:
        workers: One address `host:port` per worker; the position is the rank. No address occurs
            twice. An IPv6 host stands in brackets, `[::1]:2222`. The port is from 1 to 65535.
        rank: The index of this worker, from 0 to `len(workers) - 1`.
        source: Where these facts come from, as the log and error messages name it.

    Raises:
        ClusterError: The addresses or the rank are not as above.

    Example:
        >>> from tfscale import ClusterSpec
        >>> spec = ClusterSpec(workers=("a:2222", "b:2222"), rank=1)
        >>> spec.num_workers, spec.is_chief
        (2, False)
        >>> spec.to_tf_config()
        '{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 1}}'
    """

    workers: tuple[str, ...]
    rank: int
    source: str = "the script"

    def __post_init__(self) -> None:
        if not isinstance(self.workers, tuple) or not self.workers:
            raise ClusterError(
                f"`workers` must be a tuple of at least one address.\n"
                f"Received: {quoted(self.workers)}, from {self.source}. "
                f"Give one 'host:port' per worker, for example ('10.0.0.1:2222', '10.0.0.2:2222')."
            )
        ranks: dict[str, int] = {}
        for rank, address in enumerate(self.workers):
            self._check_address(rank, address)
            self._check_unique(ranks.setdefault(address, rank), rank)
        # bool is an int to Python; a rank of True is a mistake.
        if type(self.rank) is not int or not 0 <= self.rank < self.num_workers:
            raise ClusterError(
                f"`rank` must be an integer from 0 to {self.num_workers - 1}, "
                f"the index of one of the {self.num_workers} workers.\n"
                f"Received: {quoted(self.rank)}, from {self.source}. "
                f"Give every worker its own rank, or list the workers that are missing."
            )

    @property
    def num_workers(self) -> int:
        """The number of workers, this one included."""
        return len(self.workers)

    @property
    def is_chief(self) -> bool:
        """Whether this is the worker of rank 0, which writes files and reports."""
        return self.rank == 0

    def to_tf_config(self) -> str:
        """Returns the value of `TF_CONFIG` that describes these workers to TensorFlow.

        `resolve_cluster` reads it back to the same workers and rank.
        """
        return json.dumps(
            {
                "cluster": {"worker": list(self.workers)},
                "task": {"type": "worker", "index": self.rank},
            }
        )

    def _check_address(self, rank: int, address: str) -> None:
        match = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
        if match is None or not 1 <= int(match[1]) <= 65535:
            raise ClusterError(
                f"The address of worker {rank} must have the form 'host:port', "
                f"with a port from 1 to 65535.\n"
                f"Received: {quoted(address)}, from {self.source}. "
                f"Give it, for example, as '10.0.0.1:2222' or '[::1]:2222'."
            )

    def _check_unique(self, first: int, rank: int) -> None:
        if first != rank:
            raise ClusterError(
                f"Every worker must have an address of its own.\n"
                f"Received: {quoted(self.workers[rank])} for worker {first} and for worker {rank}, "
                f"from {self.source}. Give one of them another host or another port."
            )

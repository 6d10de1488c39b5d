"""On which address does each worker listen?

Two variables are the user's, the same for every worker of a job:

- `TFSCALE_HOSTS`: one host per worker, in the order of their ranks, as `a,b`, `n[01-04]` or `a:2222,b:2222`, or one in
  each line; a host that runs several workers is repeated.
- `TFSCALE_PORT`: the first port of each host; its workers take it and the next ones.
"""

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping

from tfscale.cluster.host_list import expand_hosts
from tfscale.cluster.variables import read_number
from tfscale.errors import ClusterError

HOSTS = "TFSCALE_HOSTS"
_OWN = "HOSTNAME"
PORT = "TFSCALE_PORT"
DEFAULT_PORT = 2222

# Linux hands out ports from 32768 to 60999 by itself; above, nothing takes one by chance.
_FIRST_DERIVED_PORT = 61_000
_NUM_DERIVED_PORTS = 4_000
_STRIDE = 16  # jobs with neighbouring numbers on one host, each with up to this many workers, do not meet


def read_first_port(environ: Mapping[str, str], default: int) -> int:
    """Returns `TFSCALE_PORT`, or the default.

    Raises:
        ClusterError: It is no port.
    """
    return read_number(environ, PORT, 1, 65535, "the environment") if PORT in environ else default


def derive_port(job: str) -> int:
    """Returns a port that every worker of a job derives alike, and other jobs hardly share.

    Args:
        job: What tells this job from others; a number, or any other name.
    """
    number = int(job) if job.isdecimal() and len(job) <= 12 else zlib.crc32(job.encode(errors="replace"))
    return _FIRST_DERIVED_PORT + number * _STRIDE % _NUM_DERIVED_PORTS


def add_ports(hosts: Iterable[str], first_port: int) -> tuple[str, ...]:
    """Returns one address per host; a host that occurs again gets the next port.

    A host that has a port already keeps it.

    Example:
        >>> from tfscale.cluster.addresses import add_ports
        >>> add_ports(["a", "a", "b", "c:7000"], 2222)
        ('a:2222', 'a:2223', 'b:2222', 'c:7000')
    """
    seen: Counter[str] = Counter()
    addresses = []
    for host in hosts:
        if ":" in host.rpartition("]")[2]:
            addresses.append(host)
        else:
            addresses.append(f"{host}:{first_port + seen[host]}")
            seen[host] += 1
    return tuple(addresses)


def read_hosts(environ: Mapping[str, str], num_workers: int, first_port: int) -> tuple[str, ...]:
    """Returns the addresses in `TFSCALE_HOSTS`, which must be set.

    Raises:
        ClusterError: It does not name one host per worker.
    """
    hosts = expand_hosts(environ[HOSTS], HOSTS)
    if len(hosts) != num_workers:
        raise ClusterError(
            f"`{HOSTS}` must name one host for each of the {num_workers} workers, in the order of their ranks.\n"
            f"Received: {environ[HOSTS][:200]!r}, which names {len(hosts)}. "
            f"Repeat a host that runs several workers, for example 'a,a,b,b'."
        )
    return add_ports(hosts, first_port)


def find_own_place(environ: Mapping[str, str]) -> int | None:
    """Returns the place of this pod in `TFSCALE_HOSTS`, by the name that Kubernetes gives it; None where it has none.

    Raises:
        ClusterError: `TFSCALE_HOSTS` is malformed.

    Example:
        >>> from tfscale.cluster.addresses import find_own_place
        >>> find_own_place({"TFSCALE_HOSTS": "x-chief-0-0.x,x-worker-0-[0-1].x", "HOSTNAME": "x-worker-0-1"})
        2
    """
    if not environ.get(_OWN) or HOSTS not in environ:
        return None
    own = environ[_OWN]
    hosts = expand_hosts(environ[HOSTS], HOSTS)
    places = [place for place, host in enumerate(hosts) if own in (host, host.partition(":")[0].partition(".")[0])]
    return places[0] if len(places) == 1 else None

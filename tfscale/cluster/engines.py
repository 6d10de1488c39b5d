"""Who is in the job, by the variables of an engine that is a row of a table?"""

import ipaddress
import json
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

from tfscale.cluster.addresses import DEFAULT_PORT, HOSTS, add_ports, find_own_place, read_first_port, read_hosts
from tfscale.cluster.engine_table import ENGINES, SHARED, Engine
from tfscale.cluster.host_list import MAX_WORKERS, expand_hosts
from tfscale.cluster.shown import quoted
from tfscale.cluster.spec import ClusterSpec
from tfscale.cluster.variables import WAY_ROUND, read_number, read_rank
from tfscale.errors import ClusterError

# Programs write -1 for "not at all".
_NUMBER = re.compile(r"-?[0-9]{1,9}")
_JSON = re.compile(r"\s*\[\s*[\"\]]")
_SHOWN = 60


def read(environ: Mapping[str, str]) -> ClusterSpec | None:
    """Returns the job of the first engine that tells of several workers; None where none does.

    Raises:
        ClusterError: It does not tell who they are, or which of them this is.
    """
    return next((spec for engine in ENGINES if (spec := _read(environ, engine)) is not None), None)


def names_of_table() -> tuple[str, ...]:
    """Returns the variables in the table, those that others use as well left out."""
    names = [
        name
        for each in ENGINES
        for name in (each.rank, each.own, each.hosts, each.count, *each.more_counts, *each.more_ranks)
    ]
    return tuple(dict.fromkeys(name for name in names if name and name not in SHARED))


def _read(environ: Mapping[str, str], engine: Engine) -> ClusterSpec | None:
    lists = {name: split_hosts(environ[name], name) for name in _set(environ, engine.hosts)}
    if "*" in engine.hosts and not lists:
        # A pattern may fit somebody else's counts.
        return None
    counts = [_count(environ, name, engine) for name in _set(environ, engine.count)]
    num_listed = sum(map(len, lists.values()))
    if not _tells_of_several(environ, engine, max(sum(counts), num_listed)):
        return None
    if counts and lists and sum(counts) != num_listed:
        raise ClusterError(
            f"The list of hosts of {engine.name} must have as many as it says that there are.\n"
            f"Received: {_seen(environ, engine)}. Correct them where they are set. {WAY_ROUND}"
        )
    num_workers = sum(counts) or num_listed or _count_ours(environ)
    rank = _rank(environ, engine, lists, num_workers)
    hosts = next(iter(lists.values())) if len(lists) == 1 else None
    if rank is None or (hosts is None and HOSTS not in environ):
        raise _incomplete(environ, engine, rank)
    port = read_first_port(environ, DEFAULT_PORT)
    workers = read_hosts(environ, num_workers, port) if HOSTS in environ else add_ports(hosts or (), port)
    return ClusterSpec(workers=workers, rank=rank, source=engine.name)


def _tells_of_several(environ: Mapping[str, str], engine: Engine, size: int) -> bool:
    """Whether there is more than one process; also where that cannot be told: a rank, and nothing of how many."""
    others = [_number(environ[name]) for name in engine.more_counts if name in environ]
    ranks = [_number(environ[name]) for name in (engine.rank, *engine.more_ranks) if name in environ]
    if max([size, *others]) > 1 or max(ranks, default=0) > 0:
        return True
    own = [name for name in (engine.rank, engine.own) if environ.get(name) and name not in SHARED]
    return size == 0 and bool(own)


def _rank(
    environ: Mapping[str, str], engine: Engine, lists: Mapping[str, tuple[str, ...]], num_workers: int
) -> int | None:
    """Returns the rank of this worker; None where nothing tells it."""
    if environ.get(engine.rank) and num_workers:
        return read_rank(environ, engine.rank, num_workers, engine.name)
    own = environ.get(engine.own)
    if not own:
        return None
    [(name, hosts)] = lists.items() if len(lists) == 1 else [(HOSTS, ())]
    places = [place for place, host in enumerate(hosts) if own in (host, host.partition(".")[0])]
    if len(places) == 1:
        return places[0]
    if hosts and engine.own not in SHARED:
        raise ClusterError(
            f"`{engine.own}` must be one of the hosts in `{name}`.\n"
            f"Received: {_seen(environ, engine)}. Correct them where they are set. {WAY_ROUND}"
        )
    return find_own_place(environ)


def _incomplete(environ: Mapping[str, str], engine: Engine, rank: int | None) -> ClusterError:
    missing = []
    if rank is None and not environ.get(engine.rank) and not environ.get(engine.own):
        missing.append(engine.rank or engine.own or "its rank")
    way_out = f"Set {' and '.join(missing)} on every worker, or TF_CONFIG."
    if HOSTS not in environ and len(_set(environ, engine.hosts)) != 1:
        missing.append(f"{engine.hosts} or {HOSTS}" if engine.hosts and "*" not in engine.hosts else HOSTS)
        give = (
            f"ive every worker {HOSTS}, one host per worker in the order of their ranks, such as 'a,b', or TF_CONFIG."
        )
        way_out = f"{engine.way_out} Or g{give}" if engine.way_out else f"G{give}"
    elif not missing:
        missing.append(f"this host's name in {HOSTS}")
        way_out = f"Name {quoted(environ.get(engine.own, ''), _SHOWN)} once in {HOSTS}, or set TF_CONFIG."
    return ClusterError(
        f"{engine.name} says that this is one of several processes: each must know the others.\n"
        f"Received: {_seen(environ, engine)}; missing: {', '.join(missing)}. "
        f"{way_out} {WAY_ROUND}"
    )


def _seen(environ: Mapping[str, str], engine: Engine) -> str:
    fields = (engine.count, engine.rank, engine.own, engine.hosts, *engine.more_counts, *engine.more_ranks)
    names = [name for field in fields for name in _set(environ, field)]
    return ", ".join(f"{name}={quoted(environ[name], _SHOWN)}" for name in names[:8])


def _set(environ: Mapping[str, str], name: str) -> list[str]:
    """Returns the variables that are set to something, by a name in which a `*` may stand for any text."""
    if "*" in name:
        return sorted(each for each in environ if fnmatchcase(each, name) and environ[each])
    return [name] if environ.get(name) else []


def split_hosts(text: str, name: str) -> tuple[str, ...]:
    r"""Returns the hosts of a list as engines write it: a JSON array, or names with commas or line breaks between.

    Raises:
        ClusterError: It is none of these.

    Example:
        >>> from tfscale.cluster.engines import split_hosts
        >>> split_hosts('["algo-1", "algo-2"]', "SM_HOSTS"), split_hosts("10.0.0.1\nfe80::2", "SKYPILOT_NODE_IPS")
        (('algo-1', 'algo-2'), ('10.0.0.1', '[fe80::2]'))
    """
    if not _JSON.match(text):
        return tuple(map(_bracketed, expand_hosts(text, name)))
    try:
        hosts = json.loads(text)
    except (ValueError, RecursionError):
        hosts = None
    if not isinstance(hosts, list) or not all(isinstance(host, str) and host for host in hosts):
        raise ClusterError(
            f"`{name}` must be a JSON array of names.\n"
            f'Received: {quoted(text)}. Write it, for example, as ["a", "b"], or set TF_CONFIG. {WAY_ROUND}'
        )
    if len(hosts) > MAX_WORKERS:
        raise ClusterError(f"`{name}` must name at most {MAX_WORKERS} hosts.\nReceived: {len(hosts)}. {WAY_ROUND}")
    return tuple(map(_bracketed, hosts))


def _bracketed(host: str) -> str:
    """Returns a host; an IPv6 address in the brackets that it needs before a port."""
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    except ValueError:
        return host


def _count(environ: Mapping[str, str], name: str, engine: Engine) -> int:
    if not _NUMBER.fullmatch(environ[name]):
        return read_number(environ, name, 1, MAX_WORKERS, engine.name)
    number = _number(environ[name])
    return read_number(environ, name, 1, MAX_WORKERS, engine.name) if number > MAX_WORKERS else max(number, 1)


def _count_ours(environ: Mapping[str, str]) -> int:
    return len(expand_hosts(environ[HOSTS], HOSTS)) if HOSTS in environ else 0


def _number(text: str) -> int:
    return int(text) if _NUMBER.fullmatch(text) else 0

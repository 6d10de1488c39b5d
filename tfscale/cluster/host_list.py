"""Which hosts does a list such as `n[08-11],a[1-2]b[3-4]` name?"""

import itertools
import math
import re

from tfscale.errors import ClusterError

# More workers than any job has; a mistyped range must not fill the memory.
MAX_WORKERS = 10_000

# A comma outside of brackets ends a part.
_PART = re.compile(r"(?:[^,\[\]\s]|\[[^\[\]\s]*\])+")
_PARTS = re.compile(rf"{_PART.pattern}(?:,{_PART.pattern})*")
_LINE_BREAK = "\r\n"
_LINE_BREAKS = re.compile(f"[{_LINE_BREAK}]+")
_IPV6 = re.compile(r"\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*\].*")
_PIECE = re.compile(r"\[([^\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def expand_hosts(text: str, name: str) -> tuple[str, ...]:
    """Returns the hosts of a list, in its order, with the zeros that pad their numbers.

    The form is Slurm's: names with commas or line breaks between; a bracket stands for each of its numbers and ranges,
    and of several brackets the last one runs fastest. An IPv6 address in brackets stays as it is.

    Args:
        text: The list.
        name: The variable or flag that holds it, for the message.

    Raises:
        ClusterError: The list is malformed, or names more than 10,000 hosts.

    Example:
        >>> from tfscale.cluster.host_list import expand_hosts
        >>> expand_hosts("n[08-10,12],a[1-2]b[3-4],login", "SLURM_STEP_NODELIST")
        ('n08', 'n09', 'n10', 'n12', 'a1b3', 'a1b4', 'a2b3', 'a2b4', 'login')
    """
    lines = _LINE_BREAKS.split(text.strip(_LINE_BREAK))
    if not all(map(_PARTS.fullmatch, lines)):
        raise _malformed(text, name, "names with commas or line breaks between")
    hosts: list[str] = []
    for part in (part for line in lines for part in _PART.findall(line)):
        if _IPV6.fullmatch(part):
            hosts.append(part)
            continue
        pieces = [_numbers(inside) if not outside else [(outside, outside)] for inside, outside in _PIECE.findall(part)]
        if not all(pieces):
            raise _malformed(text, name, "numbers and rising ranges in each bracket")
        count = math.prod(sum(_size(low, high) for low, high in piece) for piece in pieces)
        if len(hosts) + count > MAX_WORKERS:
            raise _malformed(text, name, f"at most {MAX_WORKERS} hosts")
        spelled = [[each for low, high in piece for each in _spell(low, high)] for piece in pieces]
        hosts += ["".join(words) for words in itertools.product(*spelled)]
    return tuple(hosts)


def _numbers(inside: str) -> list[tuple[str, str]]:
    """Returns the ranges of a bracket; none when one is malformed."""
    matches = [_RANGE.fullmatch(each) for each in inside.split(",")]
    ranges = [(match[1], match[2] or match[1]) for match in matches if match]
    rising = len(ranges) == len(matches) and all(int(low) <= int(high) for low, high in ranges)
    return ranges if rising else []


def _size(low: str, high: str) -> int:
    return 1 if low == high else int(high) - int(low) + 1


def _spell(low: str, high: str) -> list[str]:
    if low == high:
        return [low]
    return [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]


def _malformed(text: str, name: str, rule: str) -> ClusterError:
    return ClusterError(
        f"`{name}` must be a list of hosts: {rule}.\n"
        f"Received: {text[:200]!r}. Write it, for example, as 'n[08-11],login' or 'a,b'."
    )

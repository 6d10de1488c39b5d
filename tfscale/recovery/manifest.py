"""Which objects of a store are a whole checkpoint?

Each is written once, under a name of its own: `state-TOKEN-NUMBER.SUFFIX`, the token being one of the run's. The last
object of a checkpoint is its manifest, `.json`, with the sizes and checksums of the others: without it there is none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

_FORMAT = 1
_END = ".json"
_NAME = re.compile(r"(state-[0-9a-f]{8}-(\d{1,15}))\.(json|index|data-\d{5}-of-\d{5})")
_SUFFIX = re.compile(r"index|data-\d{5}-of-\d{5}")


@dataclass(frozen=True)
class StoredFile:
    """One file of a checkpoint.

    Args:
        suffix: "index", or that of data.
        num_bytes: Its size.
        sha256: In hexadecimal digits.
    """

    suffix: str
    num_bytes: int
    sha256: str

    def __post_init__(self) -> None:
        # It becomes the name of a file of this host.
        texts = [
            (self.suffix, _SUFFIX),
            (self.sha256, re.compile("[0-9a-f]{64}")),
        ]
        are_right = all(type(text) is str and pattern.fullmatch(text) for text, pattern in texts)
        if not are_right or not _is_count(self.num_bytes):
            raise ValueError(f"its manifest names no file of a checkpoint: {ascii(self)[:200]}")


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint consists of.

    Args:
        number: Larger than those of older ones.
        is_start: Whether it is that of the start of an epoch.
        files: All of them.
    """

    number: int
    is_start: bool
    files: tuple[StoredFile, ...]

    def to_bytes(self) -> bytes:
        """What is written."""
        return json.dumps({"format": _FORMAT, **asdict(self)}).encode()


def parse_manifest(content: bytes) -> Manifest:
    """Reads what `to_bytes` has made.

    Raises:
        ValueError: For anything else.
    """
    try:
        found: dict[str, Any] = _read_json(content)
        if found["format"] != _FORMAT:
            raise ValueError(f"its manifest has the format {ascii(found['format'])[:100]}, not {_FORMAT}")
        files = tuple(StoredFile(each["suffix"], each["num_bytes"], each["sha256"]) for each in found["files"])
        suffixes = [file.suffix for file in files]
        if "index" not in suffixes or len(set(suffixes)) < len(suffixes):
            raise ValueError("its manifest names no index, or a file twice")
        if not _is_count(found["number"]) or type(found["is_start"]) is not bool:
            raise ValueError("its manifest has no number, or does not say whether it is of a start")
        return Manifest(found["number"], found["is_start"], files)
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"its manifest is none: {type(error).__name__}") from error


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _read_json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        # A number of thousands of digits is a plain ValueError.
        raise ValueError(f"its manifest is none: {type(error).__name__}") from error


def manifest_name(stem: str) -> str:
    """The name of the manifest of the checkpoint `stem`."""
    return stem + _END


def complete(names: Iterable[str]) -> list[str]:
    """The stems of the checkpoints that were written to their end, oldest first."""
    found = [match for match in map(_NAME.fullmatch, names) if match and match[3] == "json"]
    return [match[1] for match in sorted(found, key=lambda match: (int(match[2]), match[1]))]


def last_number(names: Iterable[str]) -> int:
    """The largest one, also of what was not written to its end; 0 for none."""
    return max((int(match[2]) for match in map(_NAME.fullmatch, names) if match), default=0)


def names_of(stems: Iterable[str], names: Iterable[str]) -> list[str]:
    """The objects of these checkpoints, in the order in which they are deleted: manifests first."""
    wanted = set(stems)
    found = [match[0] for match in map(_NAME.fullmatch, names) if match and match[1] in wanted]
    return sorted(found, key=lambda name: (not name.endswith(_END), name))


def leftovers(names: Iterable[str]) -> list[str]:
    """The objects of checkpoints without a manifest."""
    names = list(names)
    stems = {match[1] for match in map(_NAME.fullmatch, names) if match}
    return names_of(stems - set(complete(names)), names)

"""Which sources have other packages added?

A package names a function under the entry point group `tfscale.cluster_sources`. The function takes the environment
variables and returns a `ClusterSpec`, or None where they do not speak of a job that it knows.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tfscale.cluster.shown import quoted
from tfscale.cluster.spec import ClusterSpec
from tfscale.cluster.variables import WAY_ROUND
from tfscale.errors import ClusterError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "tfscale.cluster_sources"
_INFOS = (".dist-info", ".egg-info")


def read(environ: Mapping[str, str]) -> ClusterSpec | None:
    """Returns the job of the first source that knows it, in the order of their names; None where none does.

    Raises:
        ClusterError: A source cannot be loaded, raises something, or returns something else.
    """
    return next((spec for source in _find(tuple(sys.path)) if (spec := _ask(source, environ)) is not None), None)


@functools.lru_cache(maxsize=1)
def _find(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Returns the entry points; `path` is where Python looks for packages, for as long as it stays the same."""
    if not any(map(_mentions_group, path)):
        return ()
    # Importing it takes 60 ms, as long as all of a launcher: for those who have such a package.
    from importlib.metadata import entry_points

    return tuple(sorted(entry_points(group=GROUP), key=lambda each: (each.name, each.value)))


def _mentions_group(folder: str) -> bool:
    """Whether a package in a folder of Python's path may have entry points of the group."""
    try:
        with os.scandir(folder or ".") as entries:
            infos = [Path(entry.path, "entry_points.txt") for entry in entries if entry.name.endswith(_INFOS)]
    except NotADirectoryError:
        # An archive: only the library that reads entry points knows.
        return True
    except OSError:
        return False
    return any(GROUP.encode() in _read_bytes(info) for info in infos)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _ask(source: EntryPoint, environ: Mapping[str, str]) -> ClusterSpec | None:
    try:
        spec = source.load()(environ)
    except ClusterError:
        raise
    except Exception as error:
        raise ClusterError(
            f"A source of clusters, which another package has added, must return a job, None or a ClusterError.\n"
            f"Received: {type(error).__name__} ({quoted(str(error))}) from {_name(source)}. "
            f"Repair or uninstall it. {WAY_ROUND}"
        ) from error
    if spec is not None and not isinstance(spec, ClusterSpec):
        raise ClusterError(
            f"A source of clusters, which another package has added, must return a `tfscale.ClusterSpec` or None.\n"
            f"Received: {quoted(spec)} from {_name(source)}. Repair or uninstall it. {WAY_ROUND}"
        )
    return spec


def _name(source: EntryPoint) -> str:
    package = f" of {source.dist.name}" if source.dist is not None else ""
    return f"{source.name!r}, {source.value}{package}"

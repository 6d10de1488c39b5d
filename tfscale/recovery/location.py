"""Which directory does a name stand for: one of this host, or one of a store?"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfscale.errors import RecoveryError

# Of these it is known that a plugin would make them.
_KNOWN = frozenset({"gs", "s3", "hdfs", "viewfs", "az", "abfs", "ram", "file"})


@dataclass(frozen=True)
class RemotePath:
    """A directory that TensorFlow reaches and this host does not mount. `pathlib` would fold its slashes.

    Args:
        name: As in "gs://bucket/run", without a slash at its end.
    """

    name: str

    def __fspath__(self) -> str:
        return self.name

    def __str__(self) -> str:
        return self.name

    def __truediv__(self, part: str) -> RemotePath:
        return RemotePath(f"{self.name}/{part}")

    def resolve(self) -> RemotePath:
        """It is absolute, and has no links."""
        return self


def find_directory(directory: str | os.PathLike[str], schemes: Collection[str] | None = None) -> Path | RemotePath:
    """Returns the directory of this name, for good: a script may go to another working directory later.

    Args:
        directory: A path, "file:///path", or a name with another scheme that TensorFlow has a file system for.
        schemes: Those of TensorFlow; None to ask it.

    Raises:
        RecoveryError: When there is no file system for its scheme, or it is no name of a directory there.
    """
    text = os.fspath(directory) if isinstance(directory, str | os.PathLike) else ""
    if not isinstance(text, str) or not text or "\0" in text:
        raise _refuse(directory, "Give it the name of a directory, as text.")
    known = tf.io.gfile.get_registered_schemes() if schemes is None else schemes
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", text, re.DOTALL)
    if match is None:
        folded = re.match(r"([a-z][a-z0-9+.-]+):/", text)
        if folded and folded[1] in {*known, *_KNOWN}:
            raise _refuse(
                directory,
                "`pathlib` has folded its slashes, or one was left out. Give it as a string, "
                f"{folded[1] + '://...'!r}.",
            )
        return Path(text).absolute()
    scheme, rest = match[1], match[2]
    if scheme not in known:
        there = ", ".join(sorted(f"{each}://" for each in known if each))
        raise _refuse(
            directory,
            f"This TensorFlow ({tf.__version__}) has no file system for {scheme}://, only for {there}. Import a plugin "
            "that registers it and is made for this version before (tensorflow-io is one for s3:// and hdfs://), mount "
            "it, or copy the directory to a place of these.",
        )
    if scheme == "file":
        if not rest.startswith("/"):
            raise _refuse(directory, "A file:// name has no host: 'file:///' and the path.")
        return Path(rest)
    # hdfs:///path has no host: that of the configuration.
    parts = rest.rstrip("/").removeprefix("/").split("/")
    if not all(part.strip(".") and part.isprintable() for part in parts) or re.search(r"[*?\[\]\\]", rest):
        raise _refuse(
            directory, "A store wants a bucket or host, and folders without empty parts, '.', '..', or any of *?[]\\."
        )
    return RemotePath(f"{scheme}://{rest.rstrip('/')}")


def _refuse(directory: Any, what: str) -> RecoveryError:
    shown = os.fspath(directory) if isinstance(directory, os.PathLike) else directory
    return RecoveryError(
        "The state of a run is kept in a directory of the chief's host, or of a store that TensorFlow reaches.\n"
        f"Received: directory={shown!r}. {what}"
    )

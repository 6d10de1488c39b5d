"""A store in memory that fails where a test says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from tfscale.recovery.location import RemotePath
from tfscale.recovery.store import Store, StoreError

DIRECTORY = RemotePath("memory://bucket/run")


class MemoryObjects:
    """The objects of all folders, by their whole names."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.calls: list[tuple[str, str]] = []
        self.fault: Callable[[str, str], None] = lambda verb, name: None
        """Called with a verb and a whole name before anything is done; may raise."""
        self.late: set[str] = set()
        """What a listing does not show yet."""

    def open(self, directory: RemotePath) -> Store:
        return _MemoryStore(directory, self)

    def names(self) -> list[str]:
        """Those of this run, without its folder."""
        return sorted(name.removeprefix(f"{DIRECTORY}/") for name in self.content)


class _MemoryStore(Store):
    def __init__(self, directory: RemotePath, objects: MemoryObjects):
        super().__init__(directory)
        self._objects = objects

    def _begin(self, verb: str, name: str) -> str:
        path = self.path(name)
        self._objects.calls.append((verb, path))
        self._objects.fault(verb, path)
        return path

    def names(self) -> list[str]:
        folder = self._begin("list", "")
        found = [path for path in self._objects.content if path.rpartition("/")[0] + "/" == folder]
        return [path.rpartition("/")[2] for path in found if path not in self._objects.late]

    def pieces(self, name: str) -> Iterator[bytes]:
        path = self._begin("read", name)
        if path not in self._objects.content:
            raise FileNotFoundError(f"{path} is not there")
        content = self._objects.content[path]
        yield content[:7]
        yield content[7:]

    def upload(self, path: Path, name: str) -> None:
        # What is written is there as a whole, also where the answer to it is lost.
        target = self._begin("write", name)
        self._objects.content[target] = path.read_bytes()
        self._objects.fault("written", target)

    def delete(self, name: str) -> None:
        self._objects.content.pop(self._begin("delete", name), None)


def refuse(verb: str, name: str) -> None:
    """A fault: nothing goes."""
    raise StoreError(f"Cannot {verb}.\nReceived: {name!r}.")

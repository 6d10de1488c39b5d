"""What do saves and reading back cost in a store, beside a directory of this host?

    python -m benchmarks.recovery.storage [gs://bucket/folder ...]

A state of 100 MB, saved and read back some times in each directory: of this host, on ram://, TensorFlow's file system
for tests, and in those that are given, where folders of a random name are made and removed.
"""

from __future__ import annotations

import argparse
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence

import numpy as np

from tfscale.recovery.files import StateFiles
from tfscale.recovery.folder import Saved
from tfscale.recovery.location import RemotePath, find_directory
from tfscale.recovery.remote import RemoteDirectory


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery.storage", description=__doc__)
    parser.add_argument("directories", nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=100)
    options = parser.parse_args(arguments)
    rng = np.random.default_rng(0)
    saved = Saved({"number": 1}, [rng.normal(size=250_000).astype("float32") for _ in range(options.megabytes)])
    with tempfile.TemporaryDirectory() as local:
        names = [local, "ram://benchmark", *options.directories]
        print(f"{options.megabytes} MB, seconds, median [least .. greatest] of {options.rounds}")
        for name in names:
            directory = find_directory(name) / f"tfscale-{secrets.token_hex(4)}"
            remote = RemoteDirectory(directory, 2) if isinstance(directory, RemotePath) else None
            if remote is not None and (holder := remote.take()) is not None:
                parser.error(f"{directory}, which {holder}")
            files = remote.files if remote is not None else StateFiles(directory, 2)
            saves, reads = zip(*(_time(files, saved) for _ in range(options.rounds)), strict=True)
            files.delete()
            if remote is not None:
                remote.release()
            shown = "here" if name == local else name
            print(f"{shown:30}  save {_show(saves)}  read {_show(reads)}", flush=True)
    return 0


def _time(files: StateFiles, saved: Saved) -> tuple[float, float]:
    start_s = time.perf_counter()
    files.write(saved)
    files.wait()
    if files.failure is not None:
        raise files.failure
    middle_s = time.perf_counter()
    files.read_newest()
    return middle_s - start_s, time.perf_counter() - middle_s


def _show(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):6.2f} [{min(seconds):.2f} .. {max(seconds):.2f}]"


if __name__ == "__main__":
    sys.exit(main())

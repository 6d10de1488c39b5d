"""What runs in processes of its own for the tests of the examples."""

import contextlib
import io
import random
import runpy
import socket
import sys
from pathlib import Path

from tests.repository import ROOT

EXAMPLES = ROOT / "examples"


def run_script(name, *arguments):
    """Runs an example as `python examples/name arguments` does, and returns what it printed."""
    sys.argv = [str(EXAMPLES / name), *arguments]
    sys.path.insert(0, str(EXAMPLES))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as end:
            if end.code:
                sys.stderr.write(printed.getvalue())
                raise
    return printed.getvalue()


def build_digits(data_dir):
    """Returns both splits as lists of (image, label), and whether Python's random state was kept; without network."""
    sys.path.insert(0, str(EXAMPLES))
    from digits_dataset import load_digits

    socket.socket.connect = _refuse
    socket.getaddrinfo = _refuse
    state = random.getstate()
    splits = {
        split: [
            (image.tobytes(), int(label)) for image, label in load_digits(split, Path(data_dir)).as_numpy_iterator()
        ]
        for split in ("train", "test")
    }
    return splits, random.getstate() == state


def _refuse(*args, **kwargs):
    raise AssertionError(f"the network was asked for: {args}")

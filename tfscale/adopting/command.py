"""`tfscale init`: shows the lines that a script needs, and writes them if it is asked to."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tfscale.adopting.placing import Adoption, adopt
from tfscale.adopting.source import read_source


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand.

    Args:
        args: As `tfscale init --help` has them.

    Returns:
        The exit status: 0 when all lines have their place, 1 when one has not.
    """
    source = read_source(Path(args.script))
    adoption = adopt(source, global_batch=args.global_batch, simulate=args.simulate)
    is_written = args.write and not adoption.not_placed and adoption.text != source.text
    if is_written:
        source.write(adoption.text)
    if args.json:
        facts = {
            "script": args.script,
            "diff": adoption.diff(),
            "placed": adoption.placed,
            "not_placed": adoption.not_placed,
            "remarks": adoption.remarks,
            "written": is_written,
        }
        print(json.dumps(facts, indent=1))
    else:
        _show(adoption, is_written)
    return 1 if adoption.not_placed else 0


def _show(adoption: Adoption, is_written: bool) -> None:
    """The diff alone goes to where it can be piped into `git apply`; what is said about it goes beside it."""
    print(adoption.diff(), end="")
    for each in adoption.remarks:
        print(f"Note: {each}.", file=sys.stderr)
    for each in adoption.not_placed:
        print(f"Not placed: {each}.", file=sys.stderr)
    path = adoption.source.path
    if is_written and any(each.startswith("line") for each in adoption.remarks):
        print("Lines are counted as they were before.", file=sys.stderr)
    if adoption.not_placed:
        print(f"{path} was not changed. Place that by hand: docs/command_line.md has the lines.", file=sys.stderr)
    elif is_written:
        print(
            f"Written to {path}. Prove it: `tfscale verify proof.py:build proof.py:data`, with two functions in a file "
            "beside it: build() makes and compiles the model, data() returns what `fit` is given.",
            file=sys.stderr,
        )
    elif adoption.text != adoption.source.text:
        print(f"{path} was not changed; --write does it.", file=sys.stderr)

"""What stands on the command line, and what is said of it where it cannot be used."""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from tfscale.console.commands import COMMANDS
from tfscale.errors import in_short


class Parser(argparse.ArgumentParser):
    """A parser whose messages are short, whatever was given; those of its subcommands are of the same class."""

    _given: Sequence[str] = ()

    def format_help(self) -> str:
        """The flags; below them an example, and what the exit status means."""
        command = COMMANDS.get(self.prog.rpartition(" ")[2])
        return super().format_help() + (f"\n{command.epilog()}\n" if command else "")

    def error(self, message: str) -> NoReturn:
        """Ends the process."""
        # Python 3.14 does it by itself for commands.
        command = re.match(r"argument COMMAND: invalid choice: '(\w+)'", message)
        flag = re.match(r"unrecognized arguments: (--[\w-]+)", message)
        # What the script gets may be nothing.
        message = message.removesuffix(", ...")
        near = difflib.get_close_matches(command[1], COMMANDS, 1) if command else []
        flags = self._option_string_actions
        if flag and flag[1] in flags:
            message = f"{flag[1]} stands behind the command: `{self.prog} {flag[1]}`"
        else:
            near += difflib.get_close_matches(flag[1], flags, 1) if flag else []
        said = in_short(f"{message}. Did you mean {near[0]}?" if near else message)
        if "--json" in self._given:
            sys.stdout.write(as_object("ArgumentError", said) + "\n")
        super().error(said)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's; what was given is known to whoever ends with an error."""
        # A subcommand is asked again, about nothing.
        self._given = (sys.argv[1:] if args is None else [*args]) or self._given
        return super().parse_known_args(args, namespace)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's; what is unknown to a command is said by that command, which knows its flags."""
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            command: Parser = getattr(parsed, "of_command", self)
            command._given = self._given
            command.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed


def as_object(kind: str, message: str) -> str:
    """What is refused, as `--json` gives it.

    Args:
        kind: Of the error.
        message: Its text.

    Example:
        >>> as_object("ArgumentError", "no such flag").splitlines()[2].strip()
        '"kind": "ArgumentError",'
    """
    return json.dumps({"error": {"kind": kind, "message": message}}, indent=1)


def parse_target(text: str) -> str:
    """A function of a script, as "module:name" or "file.py:name"."""
    where, _, name = text.rpartition(":")
    if not where or not name.isidentifier():
        raise argparse.ArgumentTypeError(
            f"must be module:name or file.py:name. Received: {text!r}. "
            f"Name the function after a colon, for example train.py:build"
        )
    return text


def parse_count(text: str) -> int:
    """A positive integer."""
    count = int(text) if text.isdecimal() and text.isascii() else 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer, such as 2. Received: {text!r}")
    return count


def parse_counts(text: str) -> tuple[int, ...]:
    """Positive integers, each once, with commas between."""
    counts = tuple(parse_count(part) for part in text.split(","))
    if len(set(counts)) != len(counts):
        raise argparse.ArgumentTypeError(f"must name each number once. Received: {text!r}")
    return counts

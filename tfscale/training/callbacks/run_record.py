"""What is left of a run for `tfscale report`: its starts, what was derived, the logs, and where the time went."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_log = logging.getLogger(__name__)
NAME = "run.jsonl"


class RunRecord:
    """A file of lines of JSON, each of which is whole or not there; a run that goes on adds to it.

    Args:
        directory: Of this host.
        facts: Of the run, written at each start.
        describe: Tells what was derived.
        clock: Seconds, from anywhere.
        now: Seconds since 1970.
    """

    def __init__(
        self,
        directory: Path,
        facts: Mapping[str, Any],
        describe: Callable[[], str] | None,
        *,
        clock: Callable[[], float] = time.perf_counter,
        now: Callable[[], float] = time.time,
    ):
        self._path = directory / NAME
        self._facts = facts
        self._describe = describe
        self._clock, self._now = clock, now
        self._has_begun = False
        self._bits: dict[str, Any] = {}
        self._epoch_s = self._call_s = self._test_s = clock()
        self._first_s: float | None = None
        self._validation_s = self._train_s = 0.0
        self._input_s: Callable[[], float | None] = lambda: None
        self._input_before_s = 0.0

    def begin(
        self,
        bits: Mapping[str, Any] | None = None,
        input_s: Callable[[], float | None] = lambda: None,
        *,
        link: Mapping[str, float] | None = None,
    ) -> None:
        """Another `fit` begins.

        Args:
            bits: What its bits depend on here.
            link: What was measured of the link between the replicas; None where nothing was.
            input_s: Tells for how many seconds its steps have waited for their batches; None where it is not known.
        """
        self._has_begun, self._first_s = False, None
        self._input_s = input_s
        self._bits = {name: each for name, each in (("bits", bits), ("link", link)) if each is not None}

    def begin_epoch(self, epoch: int, step: int) -> None:
        """The first of a `fit` says where it begins: at step 0, or where it goes on."""
        if not self._has_begun:
            self._has_begun = True
            derived = "" if self._describe is None else self._describe()
            line = {"kind": "start", "at": self._now(), "epoch": epoch, "step": step, **self._facts, **self._bits}
            self._write({**line, "derived": derived}, anew=step == 0)
        self._epoch_s = self._clock()
        self._validation_s = self._train_s = 0.0
        self._read_input()

    def begin_call(self) -> None:
        """A step begins, or several in one call."""
        self._call_s = self._clock()

    def end_call(self) -> None:
        """It has ended; the first one made the graph."""
        took_s = self._clock() - self._call_s
        if self._first_s is None:
            self._first_s = took_s
            self._read_input()
        else:
            self._train_s += took_s

    def begin_test(self) -> None:
        """Validation begins."""
        self._test_s = self._clock()

    def end_test(self) -> None:
        """It has ended."""
        self._validation_s += self._clock() - self._test_s

    def end_epoch(self, epoch: int, step: int, logs: Mapping[str, Any] | None, sending_s: float | None = None) -> None:
        """An epoch has ended.

        Args:
            epoch: Its number.
            step: Updates until now.
            logs: Of it.
            sending_s: Seconds that the reductions of all its steps but the first call's take by themselves, as the link
                was measured; None where none was.
        """
        numbers = {name: float(value) for name, value in (logs or {}).items() if _is_number(value)}
        line = {
            "kind": "epoch",
            "at": self._now(),
            "epoch": epoch,
            "step": step,
            # JSON has no name for what is not finite.
            "logs": {name: value if math.isfinite(value) else None for name, value in numbers.items()},
            "total_s": self._clock() - self._epoch_s,
            "first_call_s": self._first_s or 0.0,
            "train_s": self._train_s,
            "validation_s": self._validation_s,
        }
        if (input_s := self._input_s()) is not None:
            line["input_s"] = input_s - self._input_before_s
        if sending_s is not None:
            line["sending_s"] = sending_s
        # Only in the epoch in which it was.
        self._first_s = 0.0
        self._write(line)

    def end(self) -> None:
        """`fit` has come to its end."""
        if self._has_begun:
            self._write({"kind": "end", "at": self._now()})

    def _read_input(self) -> None:
        self._input_before_s = self._input_s() or 0.0

    def _write(self, line: dict[str, Any], *, anew: bool = False) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("w" if anew else "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            # Training must not suffer.
            _log.warning("%s could not be written: %s", self._path, error)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True

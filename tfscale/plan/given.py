"""What do the flags of a plan, and its traces, say of the time of a step, of the link and of what travels?"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from tfscale.errors import MeasureError
from tfscale.plan.link import PROCESSOR_S_PER_BYTE, Link, parse_link, parse_seconds
from tfscale.plan.measured_link import link_of_run
from tfscale.plan.source import Trace
from tfscale.plan.step_time import LEAST_BATCHES, MOST_OFF, StepTime

_BYTES_PER_NUMBER = 4
_MOST = 10**15


def link_of(args: argparse.Namespace, trace: Trace, most: int, assumptions: list[str]) -> Link | None:
    """Returns the link that is given; None where there is one replica.

    Args:
        args: With `link` and `latency`.
        trace: Says whether the replicas are CPUs.
        most: Replicas.
        assumptions: To which what is assumed is added.

    Raises:
        MeasureError: When there are several replicas and no link, or it is none, or a run's directory without one.
    """
    if args.link is None:
        if most > 1:
            raise MeasureError(
                "The time of a step on several replicas depends on what joins them.\n"
                f"Received: up to {most} replicas, and no link. Give --link, such as --link 25gbit."
            )
        return None
    on_cpu = trace.told.get("device") == "CPU"
    latency = None if args.latency is None else parse_seconds(args.latency)
    is_measured = os.path.isdir(args.link)
    if is_measured:
        link = link_of_run(Path(args.link))
        link = link if latency is None else dataclasses.replace(link, latency_s=latency)
    else:
        link = parse_link(args.link, latency_s=latency, processor_s_per_byte=PROCESSOR_S_PER_BYTE if on_cpu else 0.0)
    busy = link.processor_s_per_byte
    of_processor = f"; {1e9 * busy:.3g} ms/MB of the processor's time" if busy else ""
    how = "measured" if is_measured else "assumed"
    assumptions.append(f"link {link.name}, latency {1e6 * link.latency_s:.6g} us: {how}, a ring{of_processor}")
    return link


def step_time_of(text: str | None, traces: Sequence[Trace]) -> tuple[StepTime, list[str]]:
    """Returns times that were given, that were timed, or at the worst those of the runs themselves; and which.

    Args:
        text: Of the flag; None where it is not given.
        traces: Of one model.

    Raises:
        MeasureError: When the text is none, or there are no times.
    """
    measured: dict[int, float] = {}
    if text is not None:
        measured, source = _parse_times(text), "given"
    else:
        for trace in traces:
            measured |= trace.step_times
        source = "timed on one replica, by `tfscale measure`"
    if not measured:
        source = "of the runs themselves, with what measuring and their own links added: rather too long"
        for trace in traces:
            seconds = trace.seconds_per_step
            if seconds is not None and seconds > 0:
                measured[max(1, round(trace.batch / trace.replicas))] = seconds
    found = StepTime.fit(measured)
    told = f"step times {source}"
    if found.fixed_s is not None and found.per_example_s is not None:
        told += f": {1e3 * found.fixed_s:.3g} ms + {1e3 * found.per_example_s:.3g} ms an example"
        if found.off > MOST_OFF:
            told += f", from which they are up to {100 * found.off:.0f} % off: time them where nothing else runs"
    else:
        told += f", at {len(measured)} batches: between and beyond there is a band; {LEAST_BATCHES} would tell"
    return found, [told]


def size_bytes_of(parameters: int | None, trace: Trace, most: int) -> int:
    """Returns the bytes of a gradient; 0 where nothing says so and there is one replica.

    Args:
        parameters: Numbers in it, as given; None for what lies beside the trace.
        trace: Of the run.
        most: Replicas.

    Raises:
        MeasureError: When it is not known, or the number is none.
    """
    check_count("--parameters", parameters)
    found = parameters or trace.parameters
    if found is None and most > 1:
        raise MeasureError(
            "What travels between replicas must be known.\n"
            f"Received: {trace.path!r}, with no summary beside it. Give --parameters."
        )
    return _BYTES_PER_NUMBER * (found or 0)


def check_count(name: str, value: float | None) -> None:
    """Refuses what is no count; None is not given.

    Raises:
        MeasureError: Naming the flag.
    """
    if value is not None and not 1 <= value <= _MOST:
        raise MeasureError(f"`{name}` must be a positive integer, at most 1e15.\nReceived: {value!r}."[:500])


def _parse_times(text: str) -> dict[int, float]:
    pairs = [part.partition(":") for part in text.split(",")]
    if not all(batch.isdecimal() and batch.isascii() and int(batch[:15]) > 0 for batch, _, _ in pairs):
        raise MeasureError(f"Step times must be as 16:12ms,32:15ms.\nReceived: {text[:200]!r}.")
    times = {int(batch[:15]): parse_seconds(seconds) for batch, _, seconds in pairs}
    if len(times) < len(pairs):
        raise MeasureError(f"Step times must name each batch once.\nReceived: {text[:200]!r}.")
    return times

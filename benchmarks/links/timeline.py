"""What computes while collectives are under way? Read from TensorFlow's profiler."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

# What the passes of the models here consist of, fused or not, and what sends.
_HEAVY = ("MatMul", "Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput")
_COLLECTIVE = "CollectiveReduceV2"
# Level 3 shows the cheap operations too, among them the small multiplications.
_EVERYTHING = 3


@dataclasses.dataclass(frozen=True)
class Event:
    """One operation: a collective, or a heavy one of the forward or backward pass."""

    is_collective: bool
    start_us: float
    end_us: float


def record(run: Callable[[], object]) -> list[Event]:
    """Runs some steps under the profiler; returns what took part, in the order of time."""
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    with tempfile.TemporaryDirectory() as directory:
        tf.profiler.experimental.start(directory, tf.profiler.experimental.ProfilerOptions(_EVERYTHING))
        try:
            run()
        finally:
            tf.profiler.experimental.stop()
        [path] = Path(directory).rglob("*.xplane.pb")
        space = xplane_pb2.XSpace.FromString(path.read_bytes())
    events = []
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                kind = plane.event_metadata[event.metadata_id].name.rpartition(":")[2]
                if kind == _COLLECTIVE or kind.endswith(_HEAVY):
                    start_us = line.timestamp_ns / 1e3 + event.offset_ps / 1e6
                    events.append(Event(kind == _COLLECTIVE, start_us, start_us + event.duration_ps / 1e6))
    return sorted(events, key=lambda event: event.start_us)


def overlapped_us(events: Sequence[Event]) -> float:
    """For how long heavy operations ran while a collective was under way."""
    collectives = [event for event in events if event.is_collective]
    return sum(
        max(0.0, min(heavy.end_us, each.end_us) - max(heavy.start_us, each.start_us))
        for heavy in events
        if not heavy.is_collective
        for each in collectives
    )


def draw(events: Sequence[Event], width: int = 100) -> str:
    """The timeline as two lines of text: `#` where a pass computes, and where a collective is under way."""
    start_us, end_us = events[0].start_us, max(event.end_us for event in events)
    lines = [[" "] * width, [" "] * width]
    for event in events:
        first, last = (
            int((time_us - start_us) / (end_us - start_us) * (width - 1)) for time_us in (event.start_us, event.end_us)
        )
        for place in range(first, last + 1):
            lines[event.is_collective][place] = "#"
    names = ("computing      ", "collectives    ")
    return "\n".join(name + "".join(line).rstrip() for name, line in zip(names, lines, strict=True))

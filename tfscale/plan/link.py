"""How long does a step wait for the link between the replicas?

A ring sends 2 (N - 1) / N of the bytes over each replica's link, in N - 1 rounds with the latency of two replicas:
`sync = lat (N - 1) + bytes 2 (N - 1) / N / rate`. Of that the backward pass can hide a part, but not what the
processor itself has to do: `exposed = sync - min(sync - processor, hidden share of the pass)`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tfscale.errors import MeasureError

# Part of a step's computing behind which sending can hide, by the way of sending.
HIDDEN = {"one pack": 0.0, "packs": 2 / 3, "double buffering": 1.0}
# Seconds per byte that a processor is busy with sending, measured on CPUs over TCP; a GPU's own link takes none.
PROCESSOR_S_PER_BYTE = 3e-9
# One direction of the links between the GPUs of one machine, third generation (A100).
NVLINK = "nvlink"
_NVLINK_BYTES_PER_S, _NVLINK_LATENCY_S = 300e9, 10e-6
_BITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_NUMBER = r"(\d{1,12}(?:\.\d{1,12})?)"
COMPARED = ("1gbit", "10gbit", "25gbit", "100gbit", NVLINK)


@dataclass(frozen=True)
class Link:
    """What joins the replicas.

    Args:
        name: As it was given.
        bytes_per_s: In one direction.
        latency_s: Of an all-reduce of one number between two replicas.
        processor_s_per_byte: That cannot be hidden.
    """

    name: str
    bytes_per_s: float
    latency_s: float = 50e-6
    processor_s_per_byte: float = 0.0

    def sync_s(self, num_replicas: int, size_bytes: float) -> float:
        """Seconds of an all-reduce.

        Example:
            >>> from tfscale.plan import Link
            >>> round(Link("1gbit", 125e6, 0.001).sync_s(4, 1e6), 4)
            0.015
        """
        if num_replicas == 1:
            return 0.0
        return (
            self.latency_s * (num_replicas - 1) + size_bytes * 2 * (num_replicas - 1) / num_replicas / self.bytes_per_s
        )

    def exposed_s(self, num_replicas: int, size_bytes: float, pass_s: float, sending: str = "packs") -> float:
        """Seconds of a step in which nothing is computed.

        Args:
            num_replicas: N.
            size_bytes: Of all gradients, as they travel.
            pass_s: Seconds of the last micro-step.
            sending: A key of `HIDDEN`.

        Example:
            >>> from tfscale.plan import Link
            >>> link = Link("1gbit", 125e6, 0.0)
            >>> [round(link.exposed_s(2, 5e6, 0.03, way), 3) for way in ("one pack", "packs", "double buffering")]
            [0.04, 0.02, 0.01]
        """
        sync = self.sync_s(num_replicas, size_bytes)
        can_hide = max(0.0, sync - self.processor_s_per_byte * size_bytes)
        return sync - min(can_hide, HIDDEN[sending] * pass_s)


def parse_link(text: str, *, latency_s: float | None = None, processor_s_per_byte: float = 0.0) -> Link:
    """Reads "25gbit", "110MB/s" or "nvlink".

    Args:
        text: The rate in one direction.
        latency_s: 50 microseconds when None, 10 for "nvlink".
        processor_s_per_byte: As `Link` has it.

    Raises:
        MeasureError: When it is none of these.

    Example:
        >>> from tfscale.plan.link import parse_link
        >>> parse_link("25gbit").bytes_per_s, parse_link("110MB/s").bytes_per_s
        (3125000000.0, 110000000.0)
    """
    lowered = text.strip().lower()
    if lowered == NVLINK:
        latency_s = _NVLINK_LATENCY_S if latency_s is None else latency_s
        return Link(NVLINK, _NVLINK_BYTES_PER_S, latency_s, 0.0)
    found = re.fullmatch(_NUMBER + r"\s*([kmgt]?)(bit|bit/s|bps|b/s)", lowered)
    rate = float(found[1]) * _BITS[found[2]] if found else 0.0
    # A capital B is bytes, as everywhere.
    if found and (found[3] != "b/s" or text.strip().endswith("b/s")):
        rate /= 8
    if not 1 <= rate < 1e18:
        raise MeasureError(
            "A link must be a rate in one direction, such as 25gbit or 110MB/s, or nvlink.\n"
            f"Received: {text[:100]!r}. `print(dp)` on two replicas shows what a link has."
        )
    return Link(text.strip(), rate, 50e-6 if latency_s is None else latency_s, processor_s_per_byte)


def parse_seconds(text: str) -> float:
    """Reads "50us", "0.5ms" or "2s".

    Raises:
        MeasureError: When it is none of these.

    Example:
        >>> from tfscale.plan.link import parse_seconds
        >>> parse_seconds("50us"), parse_seconds("0.5ms")
        (5e-05, 0.0005)
    """
    found = re.fullmatch(_NUMBER + r"\s*(s|ms|us|ns)", text.strip())
    if found is None:
        raise MeasureError(f"A time must be as 50us, 0.5ms or 2s.\nReceived: {text[:100]!r}.")
    return round(float(found[1]) * _SECONDS[found[2]], 12)


def network_table(
    links: Mapping[str, Link], *, num_replicas: int, size_bytes: float, computing_s: float, pass_s: float
) -> list[dict[str, float | str]]:
    """Is the network fast enough? By link the share of a step that waits, and what would help.

    Args:
        links: By the name that is shown.
        num_replicas: N.
        size_bytes: Of all gradients in float32.
        computing_s: Of a step.
        pass_s: Of its last micro-step.

    Returns:
        Rows with `link` and, between 0 and 1, `waits` (packs), `one_pack`, `half_the_bytes` (bf16 or fp16) and
        `double_buffering`.
    """

    def share(link: Link, size: float, sending: str) -> float:
        waits = link.exposed_s(num_replicas, size, pass_s, sending)
        return waits / (computing_s + waits) if waits else 0.0

    return [
        {
            "link": name,
            "waits": share(link, size_bytes, "packs"),
            "one_pack": share(link, size_bytes, "one pack"),
            "half_the_bytes": share(link, size_bytes / 2, "packs"),
            "double_buffering": share(link, size_bytes, "double buffering"),
        }
        for name, link in links.items()
    ]

"""Do all replicas add known numbers to the right sum, and how long does it take?"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tfscale.doctor.finding import ERROR, OK, Finding

# Floats of 4 bytes: one number, a layer's bias, a layer, a small model.
SIZES = (1, 1_024, 262_144, 4_194_304)
_PERIOD = 251


@dataclass(frozen=True)
class Timing:
    """One size.

    Args:
        num_bytes: What each replica gives.
        seconds: The median of several.
        is_right: Whether every number of every sum was.
    """

    num_bytes: int
    seconds: float
    is_right: bool

    def bus_bytes_per_s(self, num_replicas: int) -> float:
        """What passes each replica's link: a ring sends 2 (N - 1) / N of the data over each."""
        return 2 * (num_replicas - 1) / num_replicas * self.num_bytes / self.seconds if self.seconds else 0.0


def value_of(index: int, replica: int) -> int:
    """The known number at a place of a replica's vector; integers that float32 holds, and whose sum it does.

    Example:
        >>> from tfscale.doctor.all_reduce_check import value_of
        >>> value_of(252, replica=2)
        6
    """
    return (index % _PERIOD + 1) * (replica + 1)


def sum_of(index: int, num_replicas: int) -> int:
    """Their sum over N replicas, in closed form: `(index mod 251 + 1) N (N + 1) / 2`."""
    return (index % _PERIOD + 1) * num_replicas * (num_replicas + 1) // 2


def check_all_reduce(report: dict[str, Any], num_workers: int) -> list[Finding]:
    """Judges what the workers found together."""
    if report.get("error") and "import_s" in report:
        what = "peers" if report.get("stage") == "meet" else "all-reduce"
        way_out = "Run `tfscale doctor` on all workers of the job at the same time."
        return [Finding(ERROR, what, str(report["error"]).replace("\n", " "), way_out)]
    if "meet_s" not in report:
        return []
    findings = []
    if num_workers > 1:
        findings.append(Finding(OK, "peers", f"all {num_workers} workers reach each other, and agree"))
    timings = read_timings(report)
    replicas = report["num_replicas"]
    if not all(timing.is_right for timing in timings):
        wrong = [timing.num_bytes for timing in timings if not timing.is_right]
        text = f"{replicas} replicas add known numbers to a wrong sum, with {', '.join(map(str, wrong))} bytes"
        way_out = "Look for a faulty device or network card; try make_strategy(communication='ring')."
        return [*findings, Finding(ERROR, "all-reduce", text, way_out)]
    return [
        *findings,
        Finding(OK, "all-reduce", f"{replicas} replicas ({report['communication']}) add to the right sum"),
    ]


def read_timings(report: dict[str, Any]) -> list[Timing]:
    """Returns the timings in a report."""
    return [Timing(**timing) for timing in report.get("timings", ())]


def table(timings: Sequence[Timing], num_replicas: int) -> list[str]:
    """Returns the lines that show the timings."""
    rows = [("size", "time", "bandwidth per replica")]
    for timing in timings:
        rate = timing.bus_bytes_per_s(num_replicas) / 1e6
        rows.append((f"{timing.num_bytes:,} B", f"{timing.seconds * 1e3:.2f} ms", f"{rate:,.1f} MB/s"))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def as_json(timings: Sequence[Timing], num_replicas: int) -> list[dict[str, Any]]:
    """Returns the timings for `--json`."""
    return [{**asdict(timing), "bus_bytes_per_s": timing.bus_bytes_per_s(num_replicas)} for timing in timings]

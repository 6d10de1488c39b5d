"""Which ways to send gradients are compared?

Standard library only: the process that starts the workers must leave the cores to them.
"""

from __future__ import annotations

import dataclasses

MODELS = ("mlp", "convnet")
RATES = ("none", "1gbit", "100mbit")
BYTES_PER_S = {"none": None, "1gbit": 1e9 / 8, "100mbit": 1e8 / 8}
REFERENCE, ALONE = "float32, one pack", "no reduction"

# Whose steps are shown on a timeline, and at which rate.
TRACED, TRACED_RATE = (REFERENCE, "float32, packs", "float32, double buffering"), "1gbit"


@dataclasses.dataclass(frozen=True)
class Option:
    """One way to send gradients.

    Args:
        label: As it is printed.
        compression: `"none"`, `"bf16"`, `"fp16"`, or a rank of PowerSGD.
        bytes_per_pack: 0 for one pack; None for what is chosen by measuring the link.
        exactness: As it is stated.
        within: How far the step may be beyond the limit of link and processor, as a factor; None for no bar.
        times_reference: By what factor it must beat float32 in one pack at 100 Mbit/s on the MLP; None for no bar.
        double_buffering: Whether gradients travel during the next step.
        trains: False for what needs no link: every worker by itself.
    """

    label: str
    compression: str | int = "none"
    bytes_per_pack: int | None = None
    exactness: str = "exact"
    within: float | None = None
    times_reference: float | None = None
    double_buffering: bool = False
    trains: bool = True


OPTIONS = (
    Option(ALONE, trains=False),
    Option(REFERENCE, bytes_per_pack=0),
    Option("float32, packs"),
    Option("bf16, one pack", "bf16", 0, "rounding"),
    Option("bf16, packs", "bf16", exactness="rounding", within=1.15),
    Option("fp16, packs", "fp16", exactness="rounding"),
    Option("float32, double buffering", exactness="approximate", double_buffering=True),
    Option("bf16, double buffering", "bf16", exactness="approximate", double_buffering=True),
    Option("PowerSGD, rank 1", 1, exactness="approximate"),
    Option("PowerSGD, rank 2", 2, exactness="approximate", times_reference=8.0),
    Option("PowerSGD, rank 4", 4, exactness="approximate"),
)

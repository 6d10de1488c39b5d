"""Who runs, on what, and what a GPU could do at most: plain numbers, no TensorFlow."""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.table import ruled

MODELS = ("resnet50", "gpt")
POLICIES = {"full": "mixed_bfloat16", "tiny": "float32"}
"""By size. GPUs older than Ampere take `--policy mixed_float16`."""


@dataclasses.dataclass(frozen=True)
class Gpt:
    """A decoder of `depth` blocks: attention and two dense layers of `4 * width`, all of `width`."""

    depth: int
    width: int
    heads: int
    vocabulary: int
    length: int

    @property
    def num_parameters(self) -> int:
        """Of all matrices: 12 width^2 in a block, embeddings of tokens and positions, and the head."""
        return 12 * self.depth * self.width**2 + (2 * self.vocabulary + self.length) * self.width

    @property
    def flops_per_token(self) -> float:
        """Of a step, forward and backward: 6 per parameter that multiplies, 12 L w s for attention.

        Chowdhery et al. 2022, PaLM, appendix B (arXiv 2204.02311), without the embeddings, which only look up.
        """
        multiplying = 12 * self.depth * self.width**2 + self.vocabulary * self.width
        return 6.0 * multiplying + 12.0 * self.depth * self.width * self.length


GPTS = {"full": Gpt(12, 768, 12, 8192, 1024), "tiny": Gpt(1, 16, 2, 32, 8)}
IMAGE_SIDES = {"full": 224, "tiny": 32}
PER_REPLICA_BATCH = {("resnet50", "full"): 64, ("gpt", "full"): 8, ("resnet50", "tiny"): 2, ("gpt", "tiny"): 2}

TORCH = "PyTorch DDP"
CONTENDERS = ("tfscale fit", "Keras fit, 1 device", "Keras fit, MirroredStrategy", TORCH)
"""The last one where PyTorch is to be had."""


@dataclasses.dataclass(frozen=True)
class Peak:
    """What a kind of GPU does at most, in dense matrices of half precision with sums in float32.

    Args:
        name: As the driver has it; a regular expression for the whole of it.
        tflops: 10^12 operations a second.
        has_bfloat16: Whether in bfloat16 as well as in float16.
        source: Of the number.
    """

    name: str
    tflops: float
    has_bfloat16: bool
    source: str


PEAKS = (
    Peak(r"Tesla V100-SXM2-\d+GB", 125, False, "NVIDIA V100 datasheet (2020)"),
    Peak(r"Tesla T4", 65, False, "NVIDIA T4 datasheet (2019)"),
    Peak(r"NVIDIA A100.*", 312, True, "NVIDIA A100 datasheet (2021)"),
    Peak(r"NVIDIA H100 80GB HBM3", 989, True, "NVIDIA H100 datasheet (2023), SXM, half of that with sparsity"),
    Peak(r"NVIDIA H100 PCIe", 756, True, "NVIDIA H100 datasheet (2023), PCIe, half of that with sparsity"),
    Peak(r"NVIDIA H200", 989, True, "NVIDIA H200 datasheet (2024), SXM, half of that with sparsity"),
)


def find_peak(device: str, policy: str) -> float | None:
    """Returns FLOP/s of a device at most; None where the table has none for it and this precision.

    Example:
        >>> from benchmarks.gpu.plan import find_peak
        >>> find_peak("Tesla T4", "mixed_float16"), find_peak("Tesla T4", "mixed_bfloat16")
        (65000000000000.0, None)
    """
    for peak in PEAKS:
        if re.fullmatch(peak.name, device):
            fits = policy == "mixed_float16" or (policy == "mixed_bfloat16" and peak.has_bfloat16)
            return peak.tflops * 1e12 if fits else None
    return None


@dataclasses.dataclass(frozen=True)
class Row:
    """One contender on one model.

    Args:
        model: Which of `MODELS`.
        contender: Which of `CONTENDERS`.
        num_replicas: Devices that it used.
        items_per_step: Images, or tokens, of all replicas.
        flops_per_item: Forward and backward.
        step_s: Of each round.
        first_step_s: From `compile` to the end of the first step.
        peak_bytes: Of memory, on the device that used most; None where it is not counted (CPUs).
        loss: The last one.
    """

    model: str
    contender: str
    num_replicas: int
    items_per_step: int
    flops_per_item: float
    step_s: tuple[float, ...]
    first_step_s: float
    peak_bytes: int | None
    loss: float

    @property
    def items_per_s(self) -> float:
        """Of the median round."""
        return self.items_per_step / statistics.median(self.step_s)

    def utilisation(self, peak: float | None) -> float | None:
        """Model FLOPs over those that the devices could do; None where that is not known."""
        if peak is None:
            return None
        return self.items_per_s * self.flops_per_item / (peak * self.num_replicas)


_HEADER = ("model", "contender", "devices", "step ms", "items/s", "of tfscale's", "first step s", "peak MiB", "MFU")


def render(rows: Sequence[Row], facts: dict[str, Any]) -> str:
    """The table, with what it takes to read it."""
    peak = find_peak(facts["device"], facts["policy"])
    ours = {row.model: row.items_per_s for row in rows if row.contender == CONTENDERS[0]}
    cells = (_cells(row, ours.get(row.model), peak) for row in rows)
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    known = f"{peak / 1e12:g} TFLOP/s" if peak else f"not known for {facts['device']} in {facts['policy']}: no MFU"
    return "\n".join(
        [
            f"{facts['date']}: {facts['num_devices']} x {facts['device']}, driver {facts['driver']}; {versions}.",
            f"{facts['policy']}; items are images or tokens; peak of a device: {known}.",
            "step ms: median [least .. greatest] of the rounds, in which the contenders take turns.",
            *(f"{name} is left out: {why}." for name, why in facts["left_out"].items()),
            "",
            ruled(_HEADER, cells),
        ]
    )


def _cells(row: Row, ours: float | None, peak: float | None) -> tuple[str, ...]:
    steps = [1e3 * each for each in (statistics.median(row.step_s), min(row.step_s), max(row.step_s))]
    used = row.utilisation(peak)
    return (
        row.model,
        row.contender,
        str(row.num_replicas),
        f"{steps[0]:.2f} [{steps[1]:.2f} .. {steps[2]:.2f}]",
        f"{row.items_per_s:.1f}",
        f"{row.items_per_s / ours:.3f}" if ours else "-",
        f"{row.first_step_s:.1f}",
        f"{row.peak_bytes / 2**20:.0f}" if row.peak_bytes is not None else "-",
        f"{used:.1%}" if used is not None else "-",
    )

"""What is to be known before what a plan foretells is used?"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tfscale.plan.critical_batch import CriticalBatch
from tfscale.plan.source import Trace
from tfscale.scaling.limits import MAX_CLIPPED_SHARE


def with_cautions(critical: CriticalBatch, trace: Trace) -> CriticalBatch:
    """Returns a critical batch with the cautions that its trace adds to its own."""
    return dataclasses.replace(critical, cautions=(*critical.cautions, *_cautions(critical, trace)))


def _cautions(critical: CriticalBatch, trace: Trace) -> Iterator[str]:
    is_of_noise = critical.source == "noise"
    if is_of_noise:
        yield from (f"the noise is measured approximately: {each}" for each in trace.approximate)
    if trace.clipped_share > MAX_CLIPPED_SHARE:
        yield (
            f"clipping bites in {100 * trace.clipped_share:.0f} % of the steps: where it does, a rate that grows by a "
            "rule goes too far"
        )
    examples = trace.examples_per_epoch
    if examples is not None and (critical.value or critical.low) > examples:
        what = "noise scale" if is_of_noise else "critical batch"
        yield f"the {what} is more than the {examples:g} examples of an epoch: of such batches nothing can be told"

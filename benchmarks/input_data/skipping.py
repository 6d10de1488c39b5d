"""How long does it take until the first batch, when a pass over arrays begins at a late step?"""

from __future__ import annotations

import statistics
import time

import numpy as np

import tfscale

STEPS, BATCH, NUM_STEPS = (10, 1_000, 100_000), 32, 100_001


def time_skipping(num_rounds: int) -> dict[int, float]:
    """Milliseconds to the first batch, by the step at which a shuffled and mapped pass begins; median of rounds."""
    dp = tfscale.DataParallel(global_batch=BATCH, devices=1, seed=1)
    data = dp.dataset(np.arange(BATCH * NUM_STEPS), map_fn=lambda example: example + 1, shuffle=True)
    found: dict[int, list[float]] = {step: [] for step in STEPS}
    for round_number in range(num_rounds + 1):
        for step in STEPS:
            data.start_at(0, step)
            start_s = time.perf_counter()
            next(iter(data))
            if round_number:
                found[step].append(1e3 * (time.perf_counter() - start_s))
    return {step: statistics.median(each) for step, each in found.items()}

"""Steps to a loss on a quadratic with noise, without a draw: means and variances of each direction are followed.

Zhang et al. 2019, arXiv:1907.04164: curvatures h_i = 1 / i, noise of variance h_i / B, and a start at variance 1.
"""

import numpy as np

DIRECTIONS = 1000


@np.errstate(all="ignore")
def steps_to_target(batch, momentum, target, *, most=4000):
    """The least number of steps over rates, interpolated."""
    rates = np.geomspace(0.002, 3.0, 60)[:, None]
    h = 1 / np.arange(1, DIRECTIONS + 1)[None]
    noise = h / batch
    # Second moments of the weight and of the velocity, and of both together.
    ww, wv, vv = np.ones((60, 1)) * np.ones_like(h), np.zeros((60, DIRECTIONS)), np.zeros((60, DIRECTIONS))
    before = np.full(60, 0.5 * h.sum())
    for step in range(1, most + 1):
        # v' = m v - r (h w + noise), w' = w + v'
        a, m = -rates * h, momentum
        vv_next = m * m * vv + 2 * m * a * wv + a * a * ww + rates**2 * noise
        wv_next = m * wv + a * ww
        ww, wv, vv = ww + 2 * wv_next + vv_next, wv_next + vv_next, vv_next
        loss = 0.5 * (h * ww).sum(axis=1)
        reached = loss <= target
        if reached.any():
            part = np.log(before / target) / np.log(before / loss)
            return step - 1 + float(np.min(part[reached]))
        before = loss
    raise AssertionError("the target is not reached")

"""How long does a step of b examples on one replica take: a + c b?

Of four or more per-replica batches the two are fitted; of fewer they are not known, and there is a band: no step of
more examples is faster than one of fewer, and none of fewer takes less than its part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tfscale.errors import MeasureError

LEAST_BATCHES = 4
# Beyond it the times lie on no line, and are not known better than that.
MOST_OFF = 0.1


@dataclass(frozen=True)
class StepTime:
    """Seconds of a forward and backward pass on one replica, by its examples.

    Args:
        measured: Seconds by per-replica batch.
        fixed_s: a, in seconds; None where it is not known.
        per_example_s: c, in seconds an example; None where it is not known.
        off: How far the worst of four or more batches is from a + c b, relatively; beyond a tenth there is a band.
    """

    measured: Mapping[int, float]
    fixed_s: float | None = None
    per_example_s: float | None = None
    off: float = 0.0

    @classmethod
    def fit(cls, measured: Mapping[int, float]) -> StepTime:
        """Fits a and c, weighted so that each batch's relative error counts alike; both are 0 or more.

        Args:
            measured: Seconds by per-replica batch: of one at least. a and c take four.

        Raises:
            MeasureError: When there are none, or one is no time.

        Example:
            >>> from tfscale.plan import StepTime
            >>> time = StepTime.fit({8: 0.018, 16: 0.026, 32: 0.042, 64: 0.074})
            >>> round(time.fixed_s, 6), round(time.per_example_s, 6)
            (0.01, 0.001)
        """
        for batch, seconds in measured.items():
            if batch < 1 or not (math.isfinite(seconds) and seconds > 0):
                raise MeasureError(
                    "The time of a step must be above 0, by a batch of 1 or more.\n"
                    f"Received: {seconds!r} s for {batch!r} examples. Measure it again."
                )
        if not measured:
            raise MeasureError(
                "The time to a target needs the time of a step.\n"
                "Received: none. Give a trace that `tfscale measure` has written, or --step-times 16:12ms,32:15ms."
            )
        if len(measured) < LEAST_BATCHES:
            return cls(dict(measured))
        # Least squares of (a + c b) / t - 1.
        rows = [(1 / t, b / t) for b, t in measured.items()]
        aa, ab, bb = (math.fsum(r[i] * r[j] for r in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
        ta, tb = math.fsum(r[0] for r in rows), math.fsum(r[1] for r in rows)
        determinant = aa * bb - ab * ab
        fixed, per_example = (ta * bb - tb * ab) / determinant, (tb * aa - ta * ab) / determinant
        if fixed < 0:
            fixed, per_example = 0.0, tb / bb
        elif per_example < 0:
            fixed, per_example = ta / aa, 0.0
        off = max(abs(math.log((fixed + per_example * b) / t)) for b, t in measured.items())
        return cls(dict(measured), fixed, per_example, math.expm1(off))

    def seconds(self, batch: int, micro_batch: int | None = None) -> tuple[float, float]:
        """Returns the least and the most seconds of a step of one replica; equal where they are known.

        Args:
            batch: Its examples.
            micro_batch: Most of one pass; None for all.

        Example:
            >>> from tfscale.plan import StepTime
            >>> StepTime.fit({32: 0.04}).seconds(64)
            (0.04, 0.08)
            >>> StepTime.fit({32: 0.04}).seconds(64, micro_batch=32)
            (0.08, 0.08)
        """
        rows = min(batch, micro_batch or batch)
        passes, rest = divmod(batch, rows)
        low, high = self._one_pass(rows)
        more = self._one_pass(rest) if rest else (0.0, 0.0)
        return passes * low + more[0], passes * high + more[1]

    def _one_pass(self, batch: int) -> tuple[float, float]:
        if self.fixed_s is not None and self.per_example_s is not None:
            found = self.fixed_s + self.per_example_s * batch
            factor = 1 + self.off if self.off > MOST_OFF else 1.0
            return found / factor, found * factor
        if batch in self.measured:
            return self.measured[batch], self.measured[batch]
        # a + c b grows with b, and (a + c b) / b falls.
        lows = [t if b < batch else t * batch / b for b, t in self.measured.items()]
        highs = [t * batch / b if b < batch else t for b, t in self.measured.items()]
        low, high = max(lows), min(highs)
        return min(low, high), max(low, high)

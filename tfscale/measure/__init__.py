"""How much of the gradient is noise, and so how far does a larger batch pay? Numbers in, numbers out."""

from tfscale.measure.moments import StepMoments, step_moments
from tfscale.measure.noise_scale import NoiseScale, estimate_noise_scale, steps_needed
from tfscale.measure.trace import TraceRow, format_trace, read_trace

__all__ = [
    "NoiseScale",
    "StepMoments",
    "TraceRow",
    "estimate_noise_scale",
    "format_trace",
    "read_trace",
    "step_moments",
    "steps_needed",
]

"""How much of the gradient is noise, and so how far does a larger batch pay? Numbers in, numbers out."""

from tfscale.measure.moments import StepMoments, step_moments
from tfscale.measure.noise_scale import NoiseScale, estimate_noise_scale, steps_needed

__all__ = ["NoiseScale", "StepMoments", "estimate_noise_scale", "step_moments", "steps_needed"]

"""Are all workers of the job there, and do they agree, before TensorFlow takes over?"""

from tfscale.cluster.preflight.facts import gather_facts
from tfscale.cluster.preflight.meeting import meet

__all__ = ["gather_facts", "meet"]

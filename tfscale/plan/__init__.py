"""How many replicas, which batch, how much sooner: foretold from what was measured. Numbers only."""

from tfscale.plan.critical_batch import CriticalBatch, from_noise, from_study
from tfscale.plan.link import Link
from tfscale.plan.rows import Advice, Row, advise, predict
from tfscale.plan.step_time import StepTime

__all__ = ["Advice", "CriticalBatch", "Link", "Row", "StepTime", "advise", "from_noise", "from_study", "predict"]

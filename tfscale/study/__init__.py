"""Up to which batch does twice the batch take half the steps? Measured by training, and fitted. Numbers only."""

from tfscale.study.fit import Study, fit
from tfscale.study.law import LawFit, fit_law
from tfscale.study.result import Trial, TrialResult, read_results

__all__ = ["LawFit", "Study", "Trial", "TrialResult", "fit", "fit_law", "read_results"]

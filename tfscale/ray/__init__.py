"""Training on Ray: Ray places and replaces the workers, tfscale gives the same number whatever their number.

`Trainer` is Ray's own `DataParallelTrainer`, `Report` a callback for `fit`. The process that calls `Trainer(...).fit()`
loads neither TensorFlow nor Keras; workers do.

Ray's guide: https://docs.ray.io/en/latest/train/train.html
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfscale.ray.report import Report
    from tfscale.ray.trainer import Config, Trainer

__all__ = ["Config", "Report", "Trainer"]

_HOMES = {"Config": "tfscale.ray.trainer", "Report": "tfscale.ray.report", "Trainer": "tfscale.ray.trainer"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if importlib.util.find_spec("ray") is None:
        raise ImportError(f"`tfscale.ray.{name}` needs Ray.\nReceived: no package `ray`. pip install 'tfscale[ray]'")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

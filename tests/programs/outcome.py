"""How a program is run, and what a run leaves."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np


@dataclass(frozen=True)
class Arguments:
    """Keyword arguments as a script would write them, `"a=1, b=2"`; one that a call has already stays as it is."""

    compiled: str = ""
    """Of every `model.compile`."""
    optimizers: str = ""
    """Of every optimizer of Keras's, one that `compile` names as well."""


@dataclass(frozen=True)
class Setting:
    """How a program is run. No replicas: as plain Keras, without the README's lines."""

    replicas: int = 0
    workers: int = 1
    float64: bool = False
    # Whether a program marked RANDOM draws as it stands; see `noise`.
    drawn: bool = False
    # Whether all of the script stands under the scope, what trains included.
    one_scope: bool = False
    # Whether the lines are those that `tfscale init` adds.
    init: bool = False
    # Whether plain Keras is run once more, to see whether it gets the same numbers.
    again: bool = False
    # Whether on the GPU of this machine, cut into replicas, and in which numbers it multiplies there.
    gpu: Literal["", "float32", "tf32"] = ""
    # Whether each replica's rows are copied to it ahead of time, as on GPUs.
    ahead: bool = False
    # What its calls have more.
    arguments: Arguments = Arguments()
    # What `DataParallel` gets beside the batch, as a script would write it.
    parallel: str = ""

    @property
    def plain(self) -> "Setting":
        """The run of plain Keras that this one is compared with."""
        return Setting(float64=self.float64, gpu=self.gpu, arguments=self.arguments)

    def __str__(self) -> str:
        each = f" of {self.replicas}" if self.replicas > 1 else ""
        alone = f"N={self.replicas}" if self.replicas else "Keras"
        words = [f"{self.workers} workers{each}" if self.workers > 1 else alone]
        words += [word for word in ("again", "drawn", "float64", "ahead") if getattr(self, word)]
        words += [f"GPU in {self.gpu}"] if self.gpu else []
        return ", ".join(words)


@dataclass(frozen=True)
class Outcome:
    """What a run left: numbers by name, or how it ended."""

    values: dict[str, np.ndarray] = field(default_factory=dict)
    error: str = ""
    refused: bool = False
    output: str = ""

    @property
    def error_name(self) -> str:
        return self.error.partition(":")[0]

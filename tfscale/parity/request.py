"""What is one process of a run asked to do?"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from tfscale.parity.run_spec import RunSpec
from tfscale.parity.target import Target

_FILE = "request.json"
_ERROR = "error.json"


@dataclass(frozen=True)
class Script:
    """The part that is the same for all runs.

    Args:
        build: The function that returns the compiled model.
        data: The function that returns the training data.
        epochs: Epochs to train.
        seed: Seeds Python, NumPy and Keras before the model and before the data are made.
        global_batch: Examples per step; None takes the data's own.
        import_paths: Where the parent process looks for modules.
    """

    build: Target
    data: Target
    epochs: int
    seed: int
    global_batch: int | None
    import_paths: tuple[str, ...]


@dataclass(frozen=True)
class Request:
    """One run of a script.

    Args:
        run: Which run.
        script: The script.
        start: Directory with the outcome of the reference, for its starting weights; None in the
            reference itself.
    """

    run: RunSpec
    script: Script
    start: str | None = None


@dataclass(frozen=True)
class Failure:
    """Why a process could not do what it was asked to.

    Args:
        kind: Name of the exception's class.
        message: Its text.
        trace: The end of its traceback.
    """

    kind: str
    message: str
    trace: str

    @property
    def first_line(self) -> str:
        """The error in one line."""
        lines = self.message.strip().splitlines()
        return f"{self.kind}: {lines[0]}" if lines else self.kind


def save_request(request: Request, directory: Path) -> None:
    """Writes `request` into `directory`."""
    (directory / _FILE).write_text(json.dumps(dataclasses.asdict(request)))


def load_request(directory: Path) -> Request:
    """Reads what `save_request` wrote."""
    fields = json.loads((directory / _FILE).read_text())
    script = fields["script"]
    for role in ("build", "data"):
        script[role] = Target(**script[role])
    script["import_paths"] = tuple(script["import_paths"])
    return Request(RunSpec(**fields["run"]), Script(**script), fields["start"])


def save_failure(failure: Failure, directory: Path) -> None:
    """Writes `failure` into `directory`."""
    (directory / _ERROR).write_text(json.dumps(dataclasses.asdict(failure)))


def load_failure(directory: Path) -> Failure | None:
    """Reads what `save_failure` wrote; None when it wrote nothing."""
    path = directory / _ERROR
    return Failure(**json.loads(path.read_text())) if path.exists() else None

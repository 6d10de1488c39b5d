"""What does a run leave behind, and how does it reach the process that compares?"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

# The quantities that are compared, in the order of the table.
WEIGHTS = "weights"
OPTIMIZER_STATE = "optimizer state"
EPOCH_METRICS = "epoch metrics"
EVALUATE = "evaluate"
PREDICT = "predict"
QUANTITIES = (WEIGHTS, OPTIMIZER_STATE, EPOCH_METRICS, EVALUATE, PREDICT)

_ARRAYS = "arrays.npz"
_FACTS = "facts.json"

NamedArrays = dict[str, np.ndarray]
"""Arrays by name, in order. One more dimension than in the reference: a copy per replica."""


@dataclass(frozen=True)
class ModelFacts:
    """What is known of the user's model, to name the likeliest cause of a difference.

    Args:
        own_steps: Which of "train_step" and "test_step" its class defines itself.
        batch_norm: Names of BatchNormalization layers whose statistics are of one replica's rows.
        random_off: Random layers that were switched off for the comparison.
        random_on: Random layers that could not be switched off.
        num_added_losses: Terms that `add_loss` made.
        clips: Whether the optimizer clips gradients.
        averages_micro_steps: Whether the optimizer accumulates gradients and averages weights.
        compute_dtypes: The dtypes that its layers compute in.
    """

    own_steps: tuple[str, ...] = ()
    batch_norm: tuple[str, ...] = ()
    random_off: tuple[str, ...] = ()
    random_on: tuple[str, ...] = ()
    num_added_losses: int = 0
    clips: bool = False
    averages_micro_steps: bool = False
    compute_dtypes: tuple[str, ...] = ("float32",)


@dataclass(frozen=True)
class DataFacts:
    """What is known of the user's training data.

    Args:
        global_batch: Examples of a full batch.
        num_steps: Batches of an epoch.
        batches: The sizes of batches that occur, in rising order.
        digest: A digest of all examples in order; other data, other digest.
    """

    global_batch: int
    num_steps: int
    batches: tuple[int, ...]
    digest: str

    def splits_evenly(self, num_replicas: int) -> bool:
        """Whether every batch gives all replicas as many rows."""
        return all(batch % num_replicas == 0 for batch in self.batches)


@dataclass(frozen=True)
class Outcome:
    """The result of one run, or of one worker of it.

    Args:
        start: Weights before the first step.
        arrays: Arrays of each quantity.
        model: Facts about the model.
        data: Facts about the data.
        left_out: Quantities that the model does not have, each with the error that plain Keras ends in.
        depends_on: Of a run to the bit, what its bits depend on besides.
    """

    start: NamedArrays
    arrays: dict[str, NamedArrays]
    model: ModelFacts
    data: DataFacts
    left_out: dict[str, str] = dataclasses.field(default_factory=dict)
    depends_on: dict[str, str] = dataclasses.field(default_factory=dict)


def save_outcome(outcome: Outcome, directory: Path) -> None:
    """Writes `outcome` into `directory`."""
    groups = {"start": outcome.start, **outcome.arrays}
    arrays: Any = {
        f"{group}:{index}": _plain(array)
        for group, named in groups.items()
        for index, array in enumerate(named.values())
    }
    np.savez(directory / _ARRAYS, **arrays)
    facts = {
        "names": {group: list(arrays) for group, arrays in groups.items()},
        "model": dataclasses.asdict(outcome.model),
        "data": dataclasses.asdict(outcome.data),
        "left out": outcome.left_out,
        "depends on": outcome.depends_on,
    }
    # Under another name first: an outcome is either whole or not there.
    partial = directory / "partial"
    partial.write_text(json.dumps(facts))
    partial.rename(directory / _FACTS)


def is_complete(directory: Path) -> bool:
    """Whether an outcome was saved in `directory`."""
    return (directory / _FACTS).exists()


def load_outcome(directory: Path) -> Outcome:
    """Reads what `save_outcome` wrote."""
    facts = json.loads((directory / _FACTS).read_text())
    with np.load(directory / _ARRAYS) as file:
        groups = {
            group: {name: file[f"{group}:{index}"] for index, name in enumerate(names)}
            for group, names in facts["names"].items()
        }
    return Outcome(
        start=groups.pop("start"),
        arrays=groups,
        model=ModelFacts(**_tuples(facts["model"])),
        data=DataFacts(**_tuples(facts["data"])),
        left_out=facts["left out"],
        depends_on=facts["depends on"],
    )


def load_start(directory: Path) -> list[np.ndarray]:
    """Reads the weights that the run which wrote `directory` started from."""
    names = json.loads((directory / _FACTS).read_text())["names"]["start"]
    with np.load(directory / _ARRAYS) as file:
        return [file[f"start:{index}"] for index in range(len(names))]


def load_left_out(directory: Path) -> dict[str, str]:
    """Reads which quantities the run that wrote `directory` could not give."""
    left_out: dict[str, str] = json.loads((directory / _FACTS).read_text())["left out"]
    return left_out


def _plain(array: Any) -> np.ndarray:
    """An array that numpy's own file format holds: bfloat16 is none of numpy's dtypes."""
    array = np.asarray(array)
    if array.dtype.kind == "V":
        return array.astype(np.float32)
    return array.astype(bytes) if array.dtype.kind == "O" else array


def _tuples(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in facts.items()}

"""What does `fit` train on, and can another process begin in the middle of it?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from tfscale.training import _fit_private, _tf_private
from tfscale.training.data.dataset import GlobalDataset, find_global_dataset
from tfscale.training.inputs import GlobalBatches
from tfscale.training.recovery.position import DataStart, Position, convert_step, count_calls_to_skip, find_data_start


class FitData:
    """The data of one `fit`.

    Args:
        arguments: Of `fit`, by name; what was left out may be missing.
        global_batch: Examples of a step.
    """

    def __init__(self, arguments: Mapping[str, Any], global_batch: int | None):
        self._training = find_global_dataset(arguments.get("x"))
        self._validation = find_global_dataset(arguments.get("validation_data"))
        self._steps_per_epoch = arguments.get("steps_per_epoch")
        self._iterator: Any = None
        self.initial_epoch: int = arguments.get("initial_epoch") or 0
        self.global_batch = self._training.global_batch if self._training else global_batch
        self.can_begin_within_epoch = _has_one_order(arguments)
        self._start: Position | None = None
        self._steps_per_execution = 1

    def use(self, epoch_iterator: Any, steps_per_execution: int) -> None:
        """Takes the iterator that Keras made of the training data, once the model is built."""
        self._iterator = epoch_iterator
        self._steps_per_execution = steps_per_execution
        _fit_private.begin_epochs_later(epoch_iterator, self._begin)

    @property
    def steps_per_epoch(self) -> int | None:
        """Steps of an epoch; None where only the end of the data will tell."""
        return self._steps_per_epoch or self._batches_per_pass

    @property
    def _batches_per_pass(self) -> int | None:
        batches = _fit_private.batches_per_pass(self._iterator)
        return None if batches is None or batches < 0 else int(batches)

    def count_examples(self, position: Position) -> int:
        """Examples up to a position; 0 where the size of a step is not known."""
        if self.global_batch is None:
            return 0
        per_epoch = (self.steps_per_epoch or 0) * self.global_batch
        if self._training is not None and self._steps_per_epoch is None:
            per_epoch = self._training.examples_per_epoch
        return position.epoch * per_epoch + position.step * self.global_batch

    def describe(self) -> dict[str, Any]:
        """What another process needs to read the same: seeds, and how often the validation data were read."""
        sets = {"training": self._training, "validation": self._validation}
        return {name: [data.seed, data.next_epoch] for name, data in sets.items() if data is not None}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Takes the seeds and the passes of what `describe` returned."""
        for name, data in (("training", self._training), ("validation", self._validation)):
            if data is not None and name in saved:
                seed, epoch = saved[name]
                data.start_at(epoch, seed=seed)

    def convert(self, position: Position, old_batch: int | None) -> Position:
        """Returns where a run stands that came to `position` with another global batch."""
        if old_batch is None or self.global_batch is None or old_batch == self.global_batch:
            return position
        return Position(position.epoch, convert_step(position.step, old_batch, self.global_batch))

    def start_at(self, position: Position) -> None:
        """Lets the first epoch be the one of `position`, and begin there."""
        self._start = position
        start = find_data_start(position, self._steps_per_epoch, self._batches_per_pass)
        if self._training is not None:
            self._training.start_at(start.pass_index, start.batch)
        elif start.batch:
            self._skip(start)

    def _skip(self, start: DataStart) -> None:
        data = _tf_private.distributed_dataset(self._iterator)
        if isinstance(data, GlobalBatches):
            data.start_at(start.batch)

    def _begin(self) -> tuple[int, int]:
        position, self._start = self._start, None
        if position is None:
            return 0, 0
        calls = count_calls_to_skip(position.step, self.steps_per_epoch, self._steps_per_execution)
        start = find_data_start(position, self._steps_per_epoch, self._batches_per_pass)
        return calls, max(start.batch - position.step, 0)


def _has_one_order(arguments: Mapping[str, Any]) -> bool:
    """Whether each pass over the training data has an order that a new process can have again."""
    x = arguments.get("x")
    if isinstance(x, GlobalDataset) or find_global_dataset(x) is not None:
        return True
    if isinstance(x, tf.data.Dataset):
        return not _fit_private.has_order_per_pass(x)
    if isinstance(x, tf.distribute.DistributedDataset | keras.utils.PyDataset):
        return False
    leaves = keras.tree.flatten(x)
    are_arrays = bool(leaves) and all(leaf is None or hasattr(leaf, "shape") for leaf in leaves)
    return are_arrays and arguments.get("shuffle", True) is False

"""With which epoch do the data of a `fit` begin, when it goes on where another one ended?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from tfscale.data.dataset import GlobalDataset, find_global_dataset
from tfscale.framework.fit import restored_epoch


class StartWithEpoch(keras.callbacks.Callback):
    """Lets the data begin with the epoch that `fit` begins with, which another callback may have restored.

    Args:
        dataset: The training data, or None where they are something else.
        given: The arguments of `fit`.
    """

    def __init__(self, dataset: GlobalDataset | None, given: Mapping[str, Any]):
        super().__init__()
        self._dataset = dataset
        self._validation = find_global_dataset(given.get("validation_data"))
        self._initial_epoch = given.get("initial_epoch") or 0
        self._steps_per_epoch = given.get("steps_per_epoch")
        self._validation_freq = given.get("validation_freq") or 1

    def on_train_begin(self, logs: Any = None) -> None:
        """Starts after what was done before."""
        del logs
        epoch = restored_epoch(self.model) or self._initial_epoch
        if not epoch:
            return
        if self._dataset is not None:
            num_steps = len(self._dataset)
            self._dataset.start_at(*divmod(epoch * (self._steps_per_epoch or num_steps), num_steps))
        if self._validation is not None:
            self._validation.start_at(self._passes_before(epoch))

    def _passes_before(self, epoch: int) -> int:
        """How often `fit` has evaluated before an epoch."""
        if isinstance(self._validation_freq, int):
            return epoch // self._validation_freq
        return sum(each <= epoch for each in self._validation_freq)


def start_with_epoch(given: Mapping[str, Any], model: keras.Model) -> keras.callbacks.Callback | None:
    """Returns the callback that a call of `fit` needs for its data, if any.

    Args:
        given: The arguments of `fit`.
        model: Whose `fit` it is.
    """
    datasets = [find_global_dataset(given.get(name)) for name in ("x", "validation_data")]
    if all(each is None for each in datasets):
        return None
    callback = StartWithEpoch(datasets[0], given)
    # A `CallbackList` of the user's own would not do it.
    callback.set_model(model)
    return callback

"""What does `fit` train on, and can another process begin in the middle of it?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from tfscale.data.dataset import GlobalDataset, find_global_dataset
from tfscale.data.peeking import PeekedBatches
from tfscale.framework.datasets import distributed_dataset, has_drawn_order, has_order_per_pass
from tfscale.framework.fit import batches_per_pass, begin_epochs_later
from tfscale.recovery.batch_digest import digest_batch, is_same_batch
from tfscale.recovery.identity import identify_data
from tfscale.recovery.position import DataStart, Position, convert_step, count_calls_to_skip, find_data_start
from tfscale.replicas.replica_batch import CountedPasses, GlobalBatches

Digest = dict[str, Any]
# Of those that were noted in a pass, the first is kept and as many of the newest.
_EARLIER = 6


class FitData:
    """The data of one `fit`.

    Args:
        arguments: Of `fit`, by name; what was left out may be missing.
        global_batch: Examples of a step.
        strategy: Of the job; needed where TF distributes the data.
    """

    def __init__(
        self, arguments: Mapping[str, Any], global_batch: int | None, strategy: tf.distribute.Strategy | None = None
    ):
        self._strategy = strategy
        self._x = arguments.get("x")
        self._training = find_global_dataset(arguments.get("x"))
        self._validation = find_global_dataset(arguments.get("validation_data"))
        self._steps_per_epoch = arguments.get("steps_per_epoch")
        self._iterator: Any = None
        self.initial_epoch: int = arguments.get("initial_epoch") or 0
        self.global_batch = self._training.global_batch if self._training else global_batch
        self.can_begin_within_epoch = _can_have_order_again(arguments)
        is_dataset = isinstance(self._x, tf.data.Dataset)
        self._has_order_per_pass = is_dataset and has_order_per_pass(self._x)
        self._start: Position | None = None
        self._steps_per_execution = 1
        self._batches: PeekedBatches | None = None
        self._earlier: list[Digest] = []

    @property
    def identity(self) -> dict[str, Any]:
        """What is the same for as long as a run is the same one."""
        steps = self.steps_per_epoch
        return identify_data(self._x) | ({} if steps is None else {"steps of an epoch": int(steps)})

    def use(self, epoch_iterator: Any, steps_per_execution: int) -> None:
        """Takes the iterator that Keras made of the training data, once the model is built."""
        self._iterator = epoch_iterator
        self._steps_per_execution = steps_per_execution
        begin_epochs_later(epoch_iterator, self._begin, self._batches_of)

    @property
    def steps_per_epoch(self) -> int | None:
        """Steps of an epoch; None where only the end of the data will tell."""
        return self._steps_per_epoch or self._batches_per_pass

    @property
    def _batches_per_pass(self) -> int | None:
        batches = batches_per_pass(self._iterator)
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
        known = {name: [data.seed, data.next_epoch] for name, data in sets.items() if data is not None}
        passes = distributed_dataset(self._iterator)
        # Those before the one that is under way.
        begun = passes.num_begun - (self._batches is not None) if isinstance(passes, CountedPasses) else 0
        return {**known, "passes": begun}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Takes the seeds and the passes of what `describe` returned."""
        for name, data in (("training", self._training), ("validation", self._validation)):
            if data is not None and name in saved:
                seed, epoch = saved[name]
                data.start_at(epoch, seed=seed)
        passes = distributed_dataset(self._iterator)
        if self._has_order_per_pass and isinstance(passes, GlobalBatches):
            passes.leave_out_passes(max(saved.get("passes", 0) - passes.num_begun, 0))

    def convert(self, position: Position, old_batch: int | None) -> Position:
        """Returns where a run stands that came to `position` with another global batch."""
        if old_batch is None or self.global_batch is None or old_batch == self.global_batch:
            return position
        return Position(position.epoch, convert_step(position.step, old_batch, self.global_batch))

    def start_at(self, position: Position) -> None:
        """Lets the first epoch be the one of `position`, and begin there."""
        self._start, self._batches, self._earlier = position, None, []
        start = self._find(position)
        data = distributed_dataset(self._iterator)
        if isinstance(data, CountedPasses):
            data.forget_ahead()
        if self._training is not None:
            self._training.start_at(start.pass_index, start.batch)
        elif isinstance(data, GlobalBatches):
            data.start_at(start.batch)

    def note_next_batch(self, position: Position) -> Callable[[], Digest | None]:
        """Returns what makes the digest of the batch that comes at `position`; to be called by every worker.

        Nothing is computed yet: the chief alone does, and not on the training thread.
        """
        at: list[Any] = [*self._find(position), self.global_batch]
        if self._training is not None and self._training.reads_by_index:
            training = self._training
            return lambda: {"at": at, **digest_batch(_examples_at(training, at))}
        if not self.can_begin_within_epoch or self._batches is None:
            return lambda: None
        following = self._parts(self._batches.peek())

        def note() -> Digest:
            noted = {"at": at, **digest_batch(following)}
            earlier, self._earlier = self._earlier, [*self._earlier[:1], *self._earlier[1:][-_EARLIER:], noted]
            return {**noted, "earlier": earlier}

        return note

    def finds_next_batch(self, position: Position, noted: Digest) -> Callable[[], bool]:
        """As `note_next_batch`: returns what says whether the batch at `position` is the one that was noted."""
        pass_index, first, batch = noted["at"]
        if self._training is not None and self._training.reads_by_index:
            training = self._training
            return lambda: is_same_batch(noted, _examples_at(training, noted["at"]))
        start = self._find(position)
        if start.pass_index != pass_index or self._batches is None:
            return lambda: False
        shift = 0 if batch == self.global_batch else first * batch - start.batch * (self.global_batch or 0)
        following = self._parts(self._batches.peek())
        return lambda: shift >= 0 and is_same_batch(noted, following, shift)

    def goes_on_with(self, position: Position, noted: Digest) -> Callable[[], bool]:
        """As `finds_next_batch`, before training: begins the pass of which Keras will ask, to look at its batches.

        One batch may be the same by chance, of one example in particular. So those that were noted before in this pass
        are looked at as well, where what was used must be read again anyway.
        """
        data = distributed_dataset(self._iterator)
        start = self._find(position)
        if self._training is not None or noted["at"][2] != self.global_batch:
            if self._training is None or not self._training.reads_by_index:
                self._batches = PeekedBatches(data.begin_ahead())
            return self.finds_next_batch(position, noted)
        earlier = [each for each in noted.get("earlier", []) if each["at"][0] == start.pass_index]
        reached = min([start.batch, *(each["at"][1] for each in earlier)])
        data.start_at(reached)
        self._batches = PeekedBatches(data.begin_ahead())
        found = []
        for each in [*earlier, noted]:
            self._batches.skip(each["at"][1] - reached)
            reached = each["at"][1]
            found.append((each, self._parts(self._batches.peek())))
        self._earlier = [*earlier, {**noted, "earlier": []}]
        return lambda: all(is_same_batch(*each) for each in found)

    def end_epoch(self, position: Position) -> None:
        """Is told where an epoch has ended: there a pass may have, too."""
        if self._find(position).batch == 0:
            self._batches, self._earlier = None, []

    def _find(self, position: Position) -> DataStart:
        return find_data_start(position, self._steps_per_epoch, self._batches_per_pass)

    def _parts(self, batch: Any) -> Any:
        """A batch that TF has distributed, by replica; any other one, or None behind the last one, as it is."""
        iterator = self._batches.iterator if self._batches else None
        if batch is None or self._strategy is None or not isinstance(iterator, tf.distribute.DistributedIterator):
            return batch
        local = self._strategy.experimental_local_results
        here = len(self._strategy.extended.worker_devices)
        return tuple(
            tf.nest.map_structure(lambda value, index=index: local(value)[index], batch) for index in range(here)
        )

    def _batches_of(self, iterator: Any) -> PeekedBatches:
        if self._batches is None or self._batches.iterator is not iterator:
            self._batches = PeekedBatches(iterator)
        return self._batches

    def _begin(self) -> tuple[int, int]:
        position, self._start = self._start, None
        if position is None:
            return 0, 0
        calls = count_calls_to_skip(position.step, self.steps_per_epoch, self._steps_per_execution)
        start = self._find(position)
        return calls, max(start.batch - position.step, 0)


def _can_have_order_again(arguments: Mapping[str, Any]) -> bool:
    """Whether a new process can have the order of a pass over the training data again, as far as can be told before."""
    x = arguments.get("x")
    if isinstance(x, GlobalDataset) or find_global_dataset(x) is not None:
        return True
    if isinstance(x, tf.data.Dataset):
        return not has_drawn_order(x)
    if isinstance(x, tf.distribute.DistributedDataset | keras.utils.PyDataset):
        return False
    leaves = keras.tree.flatten(x)
    are_arrays = bool(leaves) and all(leaf is None or hasattr(leaf, "shape") for leaf in leaves)
    return are_arrays and arguments.get("shuffle", True) is False


def _examples_at(dataset: GlobalDataset, at: list[Any]) -> Any:
    """The examples of a batch of a pass, both counted from 0, whatever the size of a batch was."""
    pass_index, batch, size = at
    return dataset.examples_at(pass_index, batch * size, (batch + 1) * size)

"""What does a step send besides gradients, and what becomes of it?"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfscale.exact import metrics
from tfscale.replicas.all_reduce import all_reduce_sum
from tfscale.replicas.share import Share
from tfscale.training.step import checksums
from tfscale.training.step.non_finite import StepWatch, Telling


class SentAlong(NamedTuple):
    """What a step sends besides gradients."""

    states: Sequence[tf.Tensor] = ()
    """Metric states, where they travel in this step."""
    statistics: Sequence[keras.Variable] = ()
    """The moving averages of local BatchNormalization."""
    shared: Sequence[tf.Tensor] = ()
    """What this replica adds to each of them."""
    slots: Sequence[tf.Tensor] = ()
    """Its checksum, in its place."""
    watch: Telling | None = None
    """What it tells of losses that are not finite."""

    def decides(self) -> bool:
        """Whether what comes back tells if the update is made."""
        return isinstance(self.watch, StepWatch) and self.watch.guards

    def tensors(self) -> list[tf.Tensor]:
        """What goes over the link, in the order in which `receive` takes the sums."""
        return [*self.states, *self.slots, *(self.watch.sent if self.watch else ()), *self.shared]

    def after(self, logs: Any, share: Share) -> SentAlong:
        """The same of a step that has returned `logs`, and has left the statistics to be shared."""
        if isinstance(self.watch, StepWatch):
            named = keras.tree.flatten_with_path(dict(logs))
            self.watch.note_logs([(str(path[-1]), value) for path, value in named])
        return self._replace(shared=[weighted(variable, share) for variable in self.statistics])

    def with_states(self, variables: Sequence[keras.Variable]) -> SentAlong:
        """The same with the states of metrics, and with what travels with them."""
        states = metrics.local_metric_states(variables)
        return self._replace(states=self.watch.tell(states, variables) if self.watch else states)

    def reduce(self, model: keras.Model) -> list[tf.Tensor]:
        """Sends it by itself: what evaluation, and a user's own `train_step`, still have to send."""
        return self.receive(model, all_reduce_sum(self.tensors()))

    def receive(self, model: keras.Model, sums: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Takes in the sums of what was sent; returns those of the metric states."""
        left = iter(sums)
        states = list(itertools.islice(left, len(self.states)))
        checksums.received(model, list(itertools.islice(left, len(self.slots))))
        told = list(itertools.islice(left, len(self.watch.sent))) if self.watch else []
        for variable, value in zip(self.statistics, left, strict=True):
            variable.assign(value)
        return self.watch.receive(told, states) if self.watch else states


def weighted(variable: keras.Variable, share: Share) -> tf.Tensor:
    """What this replica adds to the mean of a variable over all examples."""
    value = tf.convert_to_tensor(variable.value)
    return value * tf.cast(share.weight, value.dtype)

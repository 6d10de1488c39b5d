"""How is a pass made that changes no variable?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.framework.graphs import is_within_reach
from tfscale.replicas.graph_walk import depends_on


class ChangingNothing(keras.StatelessScope):
    """A scope in which a pass of `model` changes no variable.

    What a layer assigns is kept for whoever reads the variable in the same pass. Not so where it was assigned in a
    branch or a loop of TensorFlow's, of which no value gets out: there the variable is read as it was before.

    Args:
        model: Whose pass it is.
    """

    def __init__(self, model: keras.Model):
        # Weight regularizers look for their variables here.
        values = [(variable, variable.value) for variable in model.trainable_weights]
        super().__init__(state_mapping=values, collect_losses=True)
        self._begun = dict(self.state_mapping)
        self._as_before: list[tf.Tensor] = []

    def get_current_value(self, variable: keras.Variable) -> Any:
        """As `keras.StatelessScope.get_current_value`."""
        value = super().get_current_value(variable)
        if value is None or is_within_reach(value):
            return value
        del self.state_mapping[id(variable)]
        begun = self._begun.get(id(variable))
        before = tf.identity(variable.value if begun is None else begun)
        self._as_before.append(before)
        self.state_mapping[id(variable)] = before
        return before

    def refuse_made_of_others(self, values: Sequence[Any]) -> None:
        """Refuses what was computed of a variable whose new value did not get out of a branch.

        Args:
            values: What the pass was made for.

        Raises:
            ModelError: When one of them was.
        """
        made = {id(each.op) for each in self._as_before if tf.is_symbolic_tensor(each)}
        symbolic = [each for each in values if tf.is_symbolic_tensor(each)]
        if made and depends_on(symbolic, lambda op: id(op) in made):
            raise ModelError(
                "With `micro_batch` or `logical_replicas` the masks and weights by which a loss is divided are counted "
                "before the step, by a pass that changes nothing.\n"
                "Received: a mask that is made of a variable which a layer assigns in a branch (`tf.cond`) or loop of "
                "the same step. Assign it outside of the branch, `v.assign(tf.where(condition, new, v))`, or leave "
                "these arguments out."
            )

"""What is read of a model that has been trained?"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfscale.parity.outcome import NamedArrays
from tfscale.parity.start import name_values
from tfscale.parity.user_data import UserData

# Each replica holds its own part of the gradient between two updates; what they
# come to shows in the weights.
_PARTIAL = "gradient_accumulator"


def weights_of(model: keras.Model) -> NamedArrays:
    """The weights, a stack of all copies where those of replicas differ."""
    return _local_copies(model.distribute_strategy, model.weights)


def optimizer_state(model: keras.Model) -> NamedArrays:
    """The state of the compiled optimizer, and of those that a user's own class holds besides."""
    held = [value for value in vars(model).values() if isinstance(value, keras.optimizers.Optimizer)]
    variables = {
        id(variable): variable
        for optimizer in held
        for variable in optimizer.variables
        if _PARTIAL not in variable.path
    }
    return _local_copies(model.distribute_strategy, list(variables.values()))


def evaluate(model: keras.Model, user_data: UserData) -> NamedArrays:
    """What an evaluation of the training data returns."""
    logs = model.evaluate(**user_data.for_evaluate(), return_dict=True)
    return {name: np.asarray(value) for name, value in logs.items()}


def predict(model: keras.Model, user_data: UserData) -> NamedArrays:
    """What is predicted for the training data."""
    predictions = model.predict(**user_data.for_predict())
    return {
        f"output {index}": np.asarray(value)
        for index, value in enumerate(tf.nest.flatten(predictions, expand_composites=True))
    }


def _local_copies(strategy: Any, variables: Sequence[keras.Variable]) -> NamedArrays:
    """The value of each variable; a stack of all copies where the bytes of those of this process's replicas differ."""
    values = []
    for variable in variables:
        copies = [np.asarray(copy) for copy in strategy.experimental_local_results(variable.value)]
        equal = len({copy.tobytes() for copy in copies}) == 1
        values.append(copies[0] if equal else np.stack(copies))
    return dict(name_values(variables, values))

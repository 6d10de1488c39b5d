"""How does one process make a run whose bits are compared?"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfscale.data_parallel import DataParallel
from tfscale.parity.bits import LOGS, epoch_group
from tfscale.parity.outcome import EVALUATE, OPTIMIZER_STATE, PREDICT, WEIGHTS, NamedArrays, Outcome
from tfscale.parity.readings import evaluate, optimizer_state, predict, weights_of
from tfscale.parity.request import Request
from tfscale.parity.run_spec import RunSpec
from tfscale.parity.start import facts_of
from tfscale.parity.user_data import UserData
from tfscale.replicas.deterministic import begin_deterministic, what_bits_depend_on


def begin_bitwise(run: RunSpec, seed: int) -> None:
    """Makes the process deterministic; TensorFlow must not have begun."""
    begin_deterministic(True, logical_replicas=run.logical_replicas, seed=seed)


def make_data_parallel(request: Request, strategy: tf.distribute.Strategy, global_batch: int) -> DataParallel:
    """What the user's script would begin with, and does where bits are compared."""
    return DataParallel(
        global_batch=global_batch,
        devices=strategy,
        # Synchronised statistics need as many devices as logical replicas.
        batch_norm="local",
        logical_replicas=request.run.logical_replicas,
        deterministic=True,
        seed=request.script.seed,
    )


def train_bitwise(model: keras.Model, user_data: UserData, epochs: int) -> Outcome:
    """Trains a model that is prepared, and returns all that may differ, in the order in which it came to be."""
    noting = _Noting()
    arguments = user_data.for_fit()
    arguments["callbacks"] = [*arguments.get("callbacks", ()), noting]
    model.fit(**arguments, epochs=epochs)
    arrays = {
        **noting.epochs,
        WEIGHTS: weights_of(model),
        OPTIMIZER_STATE: optimizer_state(model),
        EVALUATE: evaluate(model, user_data),
        PREDICT: predict(model, user_data),
    }
    return Outcome(
        noting.weights,
        arrays,
        facts_of(model),
        user_data.facts,
        depends_on=what_bits_depend_on(model.distribute_strategy),
    )


class _Noting(keras.callbacks.Callback):
    """Notes weights before the first step, and at the end of each epoch its logs and all variables."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: NamedArrays = {}
        self.epochs: dict[str, NamedArrays] = {}

    def on_train_begin(self, logs: Any = None) -> None:
        """Called by `fit` when all is built, before its first step."""
        del logs
        self.weights = weights_of(self.model)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Called by `fit`, behind the callbacks of the data."""
        named = {name: np.asarray(value) for name, value in (logs or {}).items()}
        self.epochs[epoch_group(epoch, LOGS)] = named
        self.epochs[epoch_group(epoch, WEIGHTS)] = weights_of(self.model)
        self.epochs[epoch_group(epoch, OPTIMIZER_STATE)] = optimizer_state(self.model)

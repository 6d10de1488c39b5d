"""The one object that a script holds: it wires strategy, batch and model together and decides nothing itself."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import BatchError, DeviceError
from tfscale.training.batch_norm import choose_batch_norm
from tfscale.training.inputs import worker_rank
from tfscale.training.model import prepare
from tfscale.training.strategy import adopt_strategy, make_strategy


class DataParallel:
    """Trains one Keras model on all replicas of a job, with the result of one.

    Give exactly one of the two batch sizes; the other follows:
    `global_batch = per_replica_batch * num_replicas`.

    Args:
        per_replica_batch: Examples of one replica in one step: the global batch grows with the replicas, and
            BatchNormalization keeps seeing as many examples as on one replica.
        global_batch: Examples of all replicas in one step: the batch is kept, and split. It need not be a multiple of
            the number of replicas.
        batch_norm: `"auto"`, `"local"` or `"synchronized"`. `"auto"` is local with `per_replica_batch` and
            synchronised with `global_batch` on several replicas, so that the statistics come from as many examples
            as in the one-replica run.
        devices: As `make_strategy`.
        strategy: A strategy of one's own, in place of `devices`.
        seed: Seeds Python, NumPy and Keras before the model is built, for a reproducible run; None leaves them alone.

    Raises:
        BatchError: When no or both batch sizes are given, one is not a positive integer, or the global batch is
            smaller than the number of replicas.
        DeviceError: For unknown devices, or a strategy that is not mirrored.
        ClusterError: When the environment describes a cluster by halves.

    Example:
        >>> import keras, tfscale
        >>> dp = tfscale.DataParallel(global_batch=8, devices=1)
        >>> with dp.scope():
        ...     model = dp.prepare(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))
        ...     model.compile("sgd", "mse")
        >>> dp.num_replicas, dp.global_batch, dp.rank, dp.is_chief
        (1, 8, 0, True)
    """

    def __init__(
        self,
        per_replica_batch: int | None = None,
        *,
        global_batch: int | None = None,
        batch_norm: str = "auto",
        devices: str | int | Sequence[str] = "auto",
        strategy: tf.distribute.Strategy | None = None,
        seed: int | None = None,
    ):
        _check_batches(per_replica_batch, global_batch)
        choose_batch_norm(batch_norm, per_replica_batch=1, reference_batch=1)
        if strategy is not None and devices != "auto":
            raise DeviceError(
                "`devices` and `strategy` exclude each other: a strategy has its devices.\n"
                f"Received: devices={devices!r} and a {type(strategy).__name__}. Leave one of them out."
            )
        self._strategy = make_strategy(devices) if strategy is None else adopt_strategy(strategy)
        if global_batch is None:
            self._global_batch = int(per_replica_batch or 0) * self.num_replicas
        else:
            self._global_batch = global_batch
        if self._global_batch < self.num_replicas:
            raise BatchError(
                f"`global_batch` must be at least the number of replicas ({self.num_replicas}).\n"
                f"Received: global_batch={global_batch}. Use fewer replicas, or a global batch of "
                f"{self.num_replicas} or more."
            )
        self._batch_norm = choose_batch_norm(
            batch_norm,
            per_replica_batch=self._global_batch / self.num_replicas,
            reference_batch=per_replica_batch or self._global_batch,
        )
        if seed is not None:
            keras.utils.set_random_seed(seed)

    @property
    def strategy(self) -> tf.distribute.Strategy:
        """TensorFlow's strategy, for whatever else a script needs it for."""
        return self._strategy

    @property
    def num_replicas(self) -> int:
        """Replicas of the whole job."""
        return self._strategy.num_replicas_in_sync

    @property
    def global_batch(self) -> int:
        """Examples of all replicas in one step: what a `tf.data.Dataset` is to be batched by."""
        return self._global_batch

    @property
    def rank(self) -> int:
        """Index of this worker, from 0."""
        return worker_rank(self._strategy)

    @property
    def is_chief(self) -> bool:
        """Whether this worker writes the job's files."""
        return self.rank == 0

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Where the model, the optimizer and the metrics are created, and `compile` is called."""
        return self._strategy.scope()

    def prepare(self, model: keras.Model) -> keras.Model:
        """Makes `model` exact on these replicas; see `tfscale.prepare`. The same object comes back."""
        return prepare(model, strategy=self._strategy, global_batch=self._global_batch, batch_norm=self._batch_norm)


def _check_batches(per_replica_batch: Any, global_batch: Any) -> None:
    given = {"per_replica_batch": per_replica_batch, "global_batch": global_batch}
    received = ", ".join(f"{name}={value!r}" for name, value in given.items())
    if (per_replica_batch is None) == (global_batch is None):
        raise BatchError(
            "Exactly one of `per_replica_batch` and `global_batch` must be given.\n"
            f"Received: {received}. Give `per_replica_batch` to grow the batch with the replicas, `global_batch` to "
            "keep it."
        )
    for name, value in given.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise BatchError(f"`{name}` must be a positive integer.\nReceived: {name}={value!r}.")

"""Which shares of the rows let all workers finish a step at the same time?

In a step that ends with a reduction everybody takes as long as the slowest. So a few steps are taken without one: each
worker reads its rows, and runs the model forwards and backwards on them, by itself.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfscale.framework.models import call_model
from tfscale.replicas.agreement import gather_from_workers
from tfscale.replicas.all_reduce import replica_id
from tfscale.replicas.replica_batch import ReplicaBatch, local_replicas, worker_rank

_log = logging.getLogger(__name__)

# The first steps make graphs and fill buffers.
_NUM_UNTIMED, _NUM_TIMED = 3, 8
# Of fewer steps a hiccup would be a large part; of more of them, a fast model takes no time at all.
_AT_LEAST_S = 1.0
# Nobody's rows are lost in the noise, and no replica is left without any.
_LEAST_SHARE = 0.05


def make_probe(model: keras.Model, strategy: tf.distribute.Strategy) -> Callable[[Sequence[ReplicaBatch]], None]:
    """Returns what runs a built model on the rows of this process, forwards and backwards, without communication.

    It changes nothing: no weight is updated, and nothing in the model counts it. Layers run as in `predict`, because
    BatchNormalization may communicate in training.
    """
    first = local_replicas(strategy).first

    def one_replica(parts: Sequence[ReplicaBatch]) -> tf.Tensor:
        x, _, _ = keras.utils.unpack_x_y_sample_weight(parts[replica_id() - first].data)
        weights = [variable.value for variable in model.trainable_variables]
        with tf.GradientTape() as tape:
            outputs = tf.nest.flatten(call_model(model, x, training=False))
            total = tf.add_n([tf.reduce_sum(tf.cast(output, tf.float32)) for output in outputs])
        gradients = [each for each in tape.gradient(total, weights) if each is not None]
        # All are needed, or TensorFlow would leave them out.
        return tf.add_n([tf.reduce_sum(tf.cast(tf.convert_to_tensor(each), tf.float32)) for each in gradients])

    @tf.function(autograph=False, reduce_retracing=True)
    def run(parts: Sequence[ReplicaBatch]) -> Any:
        return strategy.run(one_replica, args=(parts,))

    def probe(parts: Sequence[ReplicaBatch]) -> None:
        # Reading the result waits for it.
        for value in strategy.experimental_local_results(run(parts)):
            float(value)

    return probe


def propose_loads(
    strategy: tf.distribute.Strategy,
    batches: tf.data.Dataset,
    probe: Callable[[Sequence[ReplicaBatch]], None],
) -> list[float]:
    """Measures how many examples per second each worker takes by itself; to be called by every worker.

    Args:
        strategy: Of the job.
        batches: Full steps of this worker with equal shares, endless.
        probe: From `make_probe`.

    Returns:
        The share of each worker, in hundredths that add up to about 1; equal on all workers.
    """
    endless = iter(batches)
    for parts in itertools.islice(endless, _NUM_UNTIMED):
        probe(parts)
    # All start together: workers that share a machine slow each other down, as they will in training.
    gather_from_workers(strategy, tf.constant(0.0, tf.float64))
    rates = gather_from_workers(strategy, tf.constant(_measure(endless, probe), tf.float64))
    shares = shares_of(rates)
    if worker_rank(strategy) == 0:
        measured = ", ".join(f"{rate:.4g}" for rate in rates)
        _log.info("worker_load=%s: workers alone take %s examples/s with equal shares", shares, measured)
    return shares


def shares_of(rates: Sequence[float]) -> list[float]:
    """The share of each worker from its speed, in hundredths.

    Args:
        rates: Examples per second of each worker.

    Example:
        >>> from tfscale.data.balance import shares_of
        >>> shares_of([300.0, 100.0]), shares_of([1000.0, 1.0])
        ([0.75, 0.25], [1.0, 0.05])
    """
    return [max(_LEAST_SHARE, round(rate / sum(rates), 2)) for rate in rates]


def _measure(batches: Iterator[Any], probe: Callable[[Sequence[ReplicaBatch]], None]) -> float:
    """Examples per second."""
    num_examples, start_s = 0, time.perf_counter()
    for number, parts in enumerate(batches, start=1):
        probe(parts)
        num_examples += sum(int(part.num_examples) for part in parts)
        elapsed_s = time.perf_counter() - start_s
        if number >= _NUM_TIMED and elapsed_s >= _AT_LEAST_S:
            break
    return num_examples / elapsed_s

"""How do all workers learn where the chief hears their heartbeats?"""

from __future__ import annotations

import random

import tensorflow as tf

from tfscale.cluster.heartbeats import Heartbeats
from tfscale.framework.collectives import hear_from_other_worker, tell_other_workers
from tfscale.replicas.all_reduce import all_gather

# The chief comes here as late as the others; where it does not at all, there is no watch.
_PATIENCE_S = 10.0


def introduce(heartbeats: Heartbeats, strategy: tf.distribute.Strategy, workers: list[str], rank: int) -> None:
    """Tells every worker, in one collective, where the chief listens and what is the token of this job."""
    own = [0, 0]
    if rank == 0:
        own[1] = random.SystemRandom().getrandbits(62)
        own[0] = heartbeats.listen(own[1])

    @tf.function(autograph=False)
    def gather() -> tf.Tensor:
        return strategy.run(lambda: all_gather(tf.constant([own], tf.int64)))

    port, token = strategy.experimental_local_results(gather())[0].numpy().tolist()[0]
    if rank > 0:
        heartbeats.connect(workers[0].rpartition(":")[0].strip("[]"), port, token)


def introduce_to_who_asks(heartbeats: Heartbeats, number: int, workers: list[str], rank: int) -> bool:
    """As `introduce`, without a collective: a worker that is alone here waits for nobody.

    Args:
        heartbeats: Of this worker.
        number: Which of the watches of this process it is, from 0.
        workers: Addresses by rank.
        rank: Of this worker.

    Returns:
        Whether this worker knows where the chief listens.
    """
    key = f"tfscale/heartbeats/{number}"
    if rank == 0:
        token = random.SystemRandom().getrandbits(62)
        tell_other_workers(key, f"{heartbeats.listen(token)} {token}")
        return True
    said = hear_from_other_worker(key, timeout_s=_PATIENCE_S)
    if said is not None:
        port, token = map(int, said.split())
        heartbeats.connect(workers[0].rpartition(":")[0].strip("[]"), port, token)
    return said is not None

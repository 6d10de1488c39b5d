"""How do all workers learn where the chief hears their heartbeats?"""

from __future__ import annotations

import random

import tensorflow as tf

from tfscale.cluster.heartbeats import Heartbeats
from tfscale.training.all_reduce import all_gather


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

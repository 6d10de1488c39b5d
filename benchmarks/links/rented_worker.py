"""One of N workers: it trains what `rented` has, over a limited link, and its chief writes down how the loss fell."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.answering import answering
from benchmarks.links import network

BATCH = 16
_EVERY = 20


def main() -> None:
    """Does what the parent's first line says."""
    answer = answering()
    start = json.loads(sys.stdin.readline())
    os.sched_setaffinity(0, {start["core"]})
    if start["workers"] > 1:
        network.leave()
    answer(ready=True)
    # The parent puts the links in.
    sys.stdin.readline()
    if start["workers"] > 1:
        network.set_up(start["rank"])
        network.limit(start["rank"], start["rate"], start["bucket"])
    answer(latency_s=_train(start))


def _train(start: dict[str, Any]) -> float | None:
    """Returns what an all-reduce of one number took when the job began; None of one replica."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    import tfscale
    from benchmarks.links.rented import build, data
    from tfscale.replicas.link import LINK

    if start["workers"] == 1:
        tfscale.simulate_replicas(1)
    dp = tfscale.DataParallel(per_replica_batch=BATCH, seed=start["seed"])
    with dp.scope():
        model = dp.prepare(build())
        model.compile(dp.optimizer(model.optimizer), model.loss)
    x, y = data()
    steps_per_epoch = len(x) // dp.global_batch
    epochs = -(-start["steps"] // steps_per_epoch)
    # One replica has no shards: a measured step takes it twice as long.
    noise = tfscale.callbacks.NoiseScale(every=_EVERY, path=Path(start["directory"], "noise.csv"))
    model.fit(dp.dataset((x, y), shuffle=True), epochs=epochs, verbose=0, callbacks=[noise])
    found = LINK.of(dp.strategy)
    return None if found is None else found.link.latency_s


if __name__ == "__main__":
    main()

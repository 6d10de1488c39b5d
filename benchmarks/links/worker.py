"""One of the two workers: all options in one process, one after the other whenever the parent asks.

It reads one JSON line per request from its standard input and answers with one on its standard output.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.answering import answering
from benchmarks.contenders import PER_REPLICA_BATCH
from benchmarks.links import network, timeline
from benchmarks.links.options import OPTIONS, Option


def main() -> None:
    """Serves until the parent is gone."""
    answer = answering()
    start = json.loads(sys.stdin.readline())
    rank = start["rank"]
    os.sched_setaffinity(0, {start["core"]})
    network.leave()
    answer(ready=True)
    # The parent puts the link in.
    sys.stdin.readline()
    network.set_up(rank)
    link, blocks = _blocks(start["model"], start["steps_per_call"])
    answer(ready=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "rate" in request:
            network.limit(rank, None if request["rate"] == "none" else request["rate"])
            answer(found=link.measure())
            continue
        if "trace" in request:
            events = timeline.record(lambda block=blocks[request["trace"]], steps=request["steps"]: block(steps))
            answer(overlapped_us=timeline.overlapped_us(events), drawn=timeline.draw(events))
            continue
        before = network.sent_bytes(rank)
        seconds = blocks[request["option"]](request["steps"])
        # One epoch more than is timed.
        answer(seconds=seconds, sent_bytes=(network.sent_bytes(rank) - before) / (2 * request["steps"]))


class _MeasuredLink:
    """What tfscale finds at the rate that the link has now; a job of its own would measure when it starts."""

    def __init__(self, strategy: Any):
        self._strategy = strategy
        self.packing: Any = None

    def measure(self) -> str | None:
        """Measures as `make_strategy` does, and says what was found."""
        import tensorflow as tf

        from tfscale.replicas.link import describe_link, measure_link
        from tfscale.replicas.packs import Packing

        options = {"ring": tf.distribute.experimental.CommunicationOptions()}
        self.packing = measure_link(self._strategy, options, Packing(), device_type="CPU").packing
        return describe_link(self._strategy)


def _blocks(model_name: str, steps_per_call: int) -> tuple[_MeasuredLink, dict[str, Callable[[int], float]]]:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    # As `tfscale launch` gives to a worker of one core: with one, nothing is sent before the backward pass has ended.
    tf.config.threading.set_inter_op_parallelism_threads(2)
    import tfscale

    strategy = tfscale.make_strategy()
    link = _MeasuredLink(strategy)
    return link, {option.label: _block(option, model_name, steps_per_call, strategy, link) for option in OPTIONS}


def _block(
    option: Option, model_name: str, steps_per_call: int, strategy: Any, link: _MeasuredLink
) -> Callable[[int], float]:
    import keras

    import tfscale
    from benchmarks import models
    from tfscale.replicas.all_reduce import set_communication_options
    from tfscale.replicas.packs import Packing

    def compiled(model: keras.Model) -> keras.Model:
        model.compile(
            models.make_optimizer(keras),
            models.make_loss(keras),
            metrics=["accuracy"],
            steps_per_execution=steps_per_call,
        )
        return model

    keras.utils.set_random_seed(0)
    if option.trains:
        rank = option.compression
        compression = tfscale.PowerSGD(rank) if isinstance(rank, int) else rank
        dp = tfscale.DataParallel(
            per_replica_batch=PER_REPLICA_BATCH,
            devices=strategy,
            network=tfscale.Network(compression=compression, double_buffering=option.double_buffering),
        )
        with dp.scope():
            model = compiled(dp.prepare(models.build(model_name, keras)))
        data = models.dataset(dp.global_batch)
    else:
        model = compiled(models.build(model_name, keras))
        data = models.dataset(PER_REPLICA_BATCH)

    class Clock(keras.callbacks.Callback):
        """Notes when each epoch ended."""

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            del epoch, logs
            times_s.append(time.perf_counter())

    times_s: list[float] = []
    traced_with: list[Any] = []

    def block(steps: int) -> float:
        packing = link.packing if option.bytes_per_pack is None else Packing(0)
        if option.trains and traced_with != [packing]:
            # One strategy serves all options, as TensorFlow wants it; the packs are chosen when a step is traced.
            traced_with[:] = [packing]
            model.train_function = None
        times_s.clear()
        set_communication_options(strategy, None, packing)
        # One epoch before the clock starts: it makes the input iterator and may trace.
        model.fit(data, steps_per_epoch=steps, epochs=2, callbacks=[Clock()], verbose=0)
        return times_s[1] - times_s[0]

    return block


if __name__ == "__main__":
    main()

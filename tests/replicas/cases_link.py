"""What a link is found to be. Every function runs in a process of its own."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tfscale.gradients.sending import reduction_time
from tfscale.replicas.all_reduce import all_reduce_sum
from tfscale.replicas.link import measure_link
from tfscale.replicas.packs import Packing


def measured() -> dict[str, Any]:
    """What is chosen with time, without, and with a size of the user's own; and a sum that is sent by the first."""
    dp = tfscale.DataParallel(global_batch=8)
    said = str(dp).splitlines()[-1]
    numbers = np.arange(2**20, dtype="float32")
    run = tf.function(lambda: dp.strategy.run(lambda: all_reduce_sum([tf.constant(numbers)] * 3)))
    [total, *_] = run()
    options = {"ring": tf.distribute.experimental.CommunicationOptions()}
    hurried = measure_link(dp.strategy, options, Packing(), device_type="CPU", budget_s=0.0)
    own = measure_link(dp.strategy, options, Packing(bytes_per_pack=5000), device_type="CPU")
    return {
        "said": said,
        "is_right": bool(np.array_equal(dp.strategy.experimental_local_results(total)[0], 2 * numbers)),
        "hurried": tuple(hurried.packing),
        "own": tuple(own.packing),
        "latency_s": own.link.latency_s,
        "bytes_per_s": own.link.bytes_per_s,
        "idle": own.link.idle,
        "reduction_s": _reduction(dp),
        "of_a_quarter_million": own.link.all_reduce_s(4 * 250_500),
    }


def _reduction(dp: tfscale.DataParallel) -> float | None:
    """That of a model of 500 inputs and 500 outputs, with biases."""
    with dp.scope():
        model = keras.Sequential([keras.Input((500,)), keras.layers.Dense(500)])
        model.compile("sgd", "mse")
    return reduction_time(model)


def not_measured() -> list[str | None]:
    """What a job says of its link when it was told how to send."""
    strategies = [tfscale.make_strategy(communication="ring")]
    return [tfscale.replicas.link.describe_link(each) for each in strategies]

"""N replicas without devices: one thread each, and a sum that waits for all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def on_replicas(num_replicas: int, replica: Callable[[int, Callable[..., Any]], Any]) -> list[Any]:
    """Runs `replica(rank, sum_over_replicas)` for every rank at once; returns their results."""
    barrier = threading.Barrier(num_replicas, timeout=60)
    given: list[Any] = [None] * num_replicas
    results: list[Any] = [None] * num_replicas
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        def sum_over_replicas(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
            given[rank] = list(tensors)
            barrier.wait()
            sums = [sum(parts[1:], parts[0]) for parts in zip(*given, strict=True)]
            barrier.wait()
            return sums

        try:
            results[rank] = replica(rank, sum_over_replicas)
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(num_replicas)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results

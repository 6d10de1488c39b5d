"""Does every worker get what a pipeline reads in one order?

Each reads all of it, and takes its rows of every batch: where each has an order of its own, examples come twice or
never.
"""

from __future__ import annotations

import tensorflow as tf

from tfscale.errors import DataError
from tfscale.framework.datasets import has_unseeded_shuffle, is_ordered_by_time


def in_one_order(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """What several workers read in the place of `dataset`; the same order on all of them, and in every run.

    Args:
        dataset: As a script gives it. `tf.data.Options` by which whatever is ready first comes first are set back.

    Raises:
        DataError: When it is shuffled without a seed, or a transformation of it is told to hand on what is ready first.
    """
    if has_unseeded_shuffle(dataset):
        raise DataError(
            "All workers must read the data in one order: each takes its own rows of every batch.\n"
            "Received: data that are shuffled without a seed, in another order on each, so that examples would be "
            "repeated and lost. Give the source to `dp.dataset(..., shuffle=True)`, or `shuffle` a seed; arrays that "
            "`fit` shuffles go by `DataParallel(seed=)`."
        )
    if is_ordered_by_time(dataset):
        raise DataError(
            "All workers must read the data in one order: each takes its own rows of every batch.\n"
            "Received: data of which a `map`, `interleave` or `batch` hands on what is ready first "
            "(`deterministic=False`), in another order on each, so that examples would be repeated and lost. Leave "
            "`deterministic=False` out; `num_parallel_calls` may stay."
        )
    if dataset.options().deterministic is not False:
        return dataset
    ordered = tf.data.Options()
    ordered.deterministic = True
    return dataset.with_options(ordered)

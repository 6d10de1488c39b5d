"""The seeds of the replicas, without replicas."""

import numpy as np
import pytest
import tensorflow as tf

from tfscale.exact.randomness import replica_seed

_LARGEST = 2**31 - 1


@pytest.mark.parametrize("first", [0, 1, 1337, _LARGEST - 1])
@pytest.mark.parametrize("dtype", ["uint32", "int32"])
def test_seeds_of_replicas_differ_and_stay_in_range(first, dtype):
    seed = tf.constant([first, 5], dtype)
    seeds = [replica_seed(seed, replica).numpy() for replica in range(64)]
    assert all(found.dtype == dtype and found[1] == 5 for found in seeds)
    words = np.array([found[0] for found in seeds], "int64")
    assert len(set(words)) == 64
    assert words.min() >= 0
    assert words.max() <= _LARGEST


def test_replica_0_keeps_the_seed():
    np.testing.assert_array_equal(replica_seed(tf.constant([3, 4]), 0), [3, 4])


def test_offset_is_the_documented_one():
    # The multiplier of Knuth's multiplicative hash: the prime nearest to 2^32 / golden ratio.
    stride = 2654435761
    assert abs(stride - 2**32 / ((1 + 5**0.5) / 2)) < 10
    found = replica_seed(tf.constant([10, 0], "uint32"), 2)
    assert int(found[0]) == (10 + 2 * stride) % _LARGEST

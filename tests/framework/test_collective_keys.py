"""A collective of any size has a key of its own among few, and what is sent is little more than what there is."""

import numpy as np
import tensorflow as tf

from tfscale.framework.collective_keys import size_to_send

# All small sizes, and what is around each power of two.
SIZES = sorted({*range(5000), *(2**power + more for power in range(3, 30) for more in (-1, 0, 1, 2**power // 3))})


def test_name_of_a_size_stands_for_what_is_sent():
    sent, names = (each.numpy().astype(np.int64) for each in size_to_send(tf.constant(SIZES)))
    of_name: dict[int, int] = {}
    assert all(of_name.setdefault(name, most) == most for name, most in zip(names, sent, strict=True))
    assert np.all(names + 2**31 < 2**9)
    assert np.all(names < 0)
    assert np.all(sent >= SIZES)
    assert np.all(sent <= np.maximum(1, np.multiply(SIZES, 17 / 16)))

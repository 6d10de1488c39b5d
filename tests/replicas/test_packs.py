import numpy as np
import pytest
import tensorflow as tf

from tfscale.replicas.packs import (
    Packing,
    choose_packing,
    cut,
    divide_into_packs,
    finishing_order,
    joined,
    put_together,
    size_bytes,
    taken_apart,
)


@pytest.mark.parametrize(
    ("sizes", "bytes_per_pack", "expected"),
    [
        ([], 0, []),
        ([], 10, []),
        ([5], 10, [[0]]),
        ([5, 5, 5], 0, [[0, 1, 2]]),
        ([5, 5, 5, 5], 10, [[0, 1], [2, 3]]),
        ([10, 10], 10, [[0], [1]]),
        ([100, 1, 1], 10, [[0, 1, 2]]),
        ([100, 1, 2], 10, [[0], [1, 2]]),
        ([9, 9, 9, 9], 10, [[0, 1], [2, 3]]),
        ([0, 0, 12, 0, 0], 10, [[0, 1, 2, 3, 4]]),
    ],
)
def test_packs(sizes, bytes_per_pack, expected):
    assert divide_into_packs(sizes, bytes_per_pack) == expected


@pytest.mark.parametrize(
    ("sizes", "bytes_per_pack", "expected"),
    [
        ([], 0, []),
        ([9, 9], 0, [[0, 1]]),
        ([10, 9, 11, 0], 0, [[0], [2], [1, 3]]),
        ([10, 11], 0, [[0], [1]]),
        ([10, 10], 20, [[0, 1]]),
    ],
)
def test_large_tensors_travel_alone_beside_one_pack(sizes, bytes_per_pack, expected):
    assert divide_into_packs(sizes, bytes_per_pack, alone_bytes=10) == expected


@pytest.mark.parametrize(
    ("requested", "device_type", "num_workers", "expected"),
    [
        (None, "CPU", 1, 0),
        (None, "CPU", 2, None),
        (None, "GPU", 1, 25 * 2**20),
        (None, "GPU", 4, 25 * 2**20),
        (0, "GPU", 4, 0),
        (1, "CPU", 1, 1),
        (123, "CPU", 2, 123),
    ],
)
def test_choice(requested, device_type, num_workers, expected):
    chosen = choose_packing(requested, device_type=device_type, num_workers=num_workers)
    assert chosen.bytes_per_pack == expected
    # Within a process alone, and where nobody asked for something else.
    assert bool(chosen.alone_bytes) is (requested is None and (device_type, num_workers) == ("CPU", 1))


@pytest.mark.parametrize(
    ("packing", "total", "expected"),
    [
        (Packing(0), 10**9, 0),
        (Packing(7), 10**9, 7),
        (Packing(), 0, 2**20),
        (Packing(), 2**23 - 1, 2**20),
        (Packing(), 2**24, 2**21),
        (Packing(), 2**40, 2**23),
        (Packing(least_bytes=2**18), 2**20, 2**18),
        (Packing(least_bytes=2**25), 2**40, 2**25),
    ],
)
def test_size_goes_by_what_there_is(packing, total, expected):
    assert packing.pack_size(total) == expected


@pytest.mark.parametrize(
    ("shape", "bytes_per_pack", "lengths"),
    [
        ((5, 2), 0, None),
        ((5, 2), 20, None),
        ((5, 2), 16, [4, 4, 2]),
        ((5, 2), 1, [1] * 10),
        ((), 1, [1]),
        ((0, 3), 1, None),
    ],
)
def test_large_tensors_are_cut(shape, bytes_per_pack, lengths):
    tensor = tf.reshape(tf.range(np.prod(shape), dtype=tf.float32), shape)
    pieces = cut(tensor, bytes_per_pack)
    assert [piece.shape for piece in pieces] == ([[length] for length in lengths] if lengths else [shape])
    np.testing.assert_array_equal(put_together(pieces, tensor), tensor)


def test_sparse_tensors_stay_whole():
    sparse = tf.IndexedSlices(tf.zeros((100, 3)), tf.range(100))
    assert cut(sparse, 1) == [sparse]


@pytest.mark.parametrize("weighted", [False, True])
def test_last_layers_finish_first(weighted):
    orders = []

    @tf.function
    def step(x):
        weights = [tf.eye(3) for _ in range(4)]
        with tf.GradientTape() as tape:
            tape.watch(weights)
            # The third is used last, whatever the order in which they are given.
            y = tf.nn.tanh(x @ weights[3] @ weights[0] @ weights[1] @ weights[2])
        gradients = tape.gradient(y, weights)
        if weighted:
            gradients = [tf.cast(tf.math.multiply_no_nan(each, 0.5), tf.bfloat16) for each in gradients]
        orders.append(finishing_order([*gradients, tf.IndexedSlices(gradients[1], tf.range(3))]))
        return gradients

    step(tf.ones((2, 3)))
    [order] = orders
    assert [index for index in order if index < 4] == [2, 1, 0, 3]
    # The sparse one is made of the second.
    assert abs(order.index(4) - order.index(1)) == 1


def test_order_without_a_graph():
    assert finishing_order([tf.ones(1)] * 3) == [2, 1, 0]


def test_sizes():
    assert size_bytes(tf.zeros((2, 3), tf.bfloat16)) == 12
    assert size_bytes(tf.IndexedSlices(tf.zeros((2, 3)), tf.range(2))) == 0


@pytest.mark.parametrize("unknown", [(), (0, 1, 2, 3, 4), (3,), (1,)])
def test_what_is_joined_comes_apart_in_its_shapes(unknown):
    shapes = [(), (3,), (2, 0), (2, 2, 1), (1,)]
    values = [np.full(shape, 10.0 + place, np.float32) for place, shape in enumerate(shapes)]

    # Of a scalar the shape is known either way. A model that stacks has gradients of no known shape.
    known = [[None] * len(shape) if place in unknown else list(shape) for place, shape in enumerate(shapes)]
    signature = [tf.TensorSpec(shape) for shape in known]

    @tf.function(input_signature=signature, autograph=False)
    def there_and_back(*tensors):
        parts = taken_apart(joined(tensors), tensors)
        assert [part.shape.as_list() for part in parts] == known
        return parts

    for part, value in zip(there_and_back(*values), values, strict=True):
        np.testing.assert_array_equal(part, value)

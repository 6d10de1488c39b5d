"""Collectives by themselves, on replicas. Every function runs in a process of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

import tfscale
from tests.exact.cases_batch_norm import count_collectives
from tfscale.exact.losses import gather_with_own_slope
from tfscale.gradients.compression.riders import sum_with_riders
from tfscale.replicas.all_reduce import all_gather, all_reduce_sum, global_mean, replica_id, set_communication_options
from tfscale.replicas.own_share import agree_on_share, make_share
from tfscale.replicas.packs import Packing


def _strategy(num_replicas: int) -> tf.distribute.Strategy:
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    return tfscale.make_strategy()


def _run(strategy: tf.distribute.Strategy, replica: Any) -> tuple[list[Any], int]:
    """What every replica returns, and the number of collectives in the graph."""
    function = tf.function(lambda: strategy.run(replica))
    results = function()
    count = count_collectives(function.get_concrete_function().graph)
    locals_ = [
        tf.nest.map_structure(lambda v, i=i: _local(strategy, v, i), results)
        for i in range(strategy.num_replicas_in_sync)
    ]
    return locals_, count


def _local(strategy: tf.distribute.Strategy, value: Any, index: int) -> Any:
    found = strategy.experimental_local_results(value)[index]
    if isinstance(found, tf.IndexedSlices):
        return tf.convert_to_tensor(found).numpy()
    return found.numpy()


def sums(num_replicas: int, dtypes: tuple[str, ...]) -> dict[str, Any]:
    """Sums of replica id + 1 in each dtype, of shapes that differ."""

    def replica() -> list[tf.Tensor]:
        own = replica_id() + 1
        shapes = [(), (3,), (2, 2), (0,)]
        return all_reduce_sum([tf.cast(tf.fill(shapes[i % 4], own), dtype) for i, dtype in enumerate(dtypes)])

    results, count = _run(_strategy(num_replicas), replica)
    return {"results": results, "collectives": count}


def one_object(num_replicas: int) -> dict[str, list[float]]:
    """What replicas get who sum one tensor of Python's, and who sum one of their own each, eagerly and in a graph."""
    strategy, one = _strategy(num_replicas), tf.ones(())

    def summed(of_all: Any) -> tuple[Any, Any]:
        context: Any = tf.distribute.get_replica_context()
        return context.all_reduce("SUM", of_all), context.all_reduce("SUM", of_all + 0.0)

    found = {}
    for name, function in {"eager": summed, "graph": tf.function(summed)}.items():
        results = strategy.run(function, args=(one,))
        found[name] = [float(_local(strategy, each, index)) for each in results for index in range(num_replicas)]
    return found


def sparse_sums(num_replicas: int) -> dict[str, Any]:
    """A sparse gradient, a dense one, and one that is missing."""

    def replica() -> list[Any]:
        own = replica_id()
        slices = tf.IndexedSlices(tf.fill((own + 1, 2), float(own + 1)), tf.range(own + 1), tf.constant([4, 2]))
        summed = all_reduce_sum([slices, None, tf.constant(float(own))])
        return [tf.convert_to_tensor(summed[0]), tf.constant(summed[1] is None), summed[2]]

    results, count = _run(_strategy(num_replicas), replica)
    return {"results": results, "collectives": count}


def sizes_of_graphs(num_replicas: int, many: int) -> dict[str, list[int]]:
    """Operations of a graph that sums, of one replica: for `many` dense tensors and for twice as many; sparse ones."""
    strategy = _strategy(num_replicas)

    def size(replica: Any) -> int:
        graph = tf.function(lambda: strategy.run(replica)).get_concrete_function().graph
        functions = graph.as_graph_def().library.function
        return (len(graph.get_operations()) + sum(len(each.node_def) for each in functions)) // num_replicas

    def dense(number: int) -> int:
        return size(lambda: all_reduce_sum([tf.zeros([2, 3])] * number))

    def sparse(number: int) -> int:
        def replica() -> list[tf.Tensor]:
            rows = [tf.IndexedSlices(tf.zeros([2, 3]), tf.constant([1, 0]), tf.constant([9, 3])) for _ in range(number)]
            return [each.values for each in all_reduce_sum(rows)]

        return size(replica)

    return {"dense": [dense(many), dense(2 * many)], "sparse": [sparse(many), sparse(2 * many)]}


def uneven_slices(num_replicas: int) -> dict[str, Any]:
    """Two sparse gradients, of as many rows as the replica's number and of two, whose collectives are counted."""

    def replica() -> Any:
        own = replica_id()
        uneven = tf.IndexedSlices(tf.fill((own, 2), float(own)), tf.fill([own], own), tf.constant([4, 2]))
        even = tf.IndexedSlices(tf.fill((2, 3), 0.5 + own), tf.constant([own, 3]), tf.constant([4, 3]))
        return [(each.values, each.indices) for each in all_reduce_sum([uneven, even])]

    results, count = _run(_strategy(num_replicas), replica)
    return {"results": results, "collectives": count}


def riders(num_replicas: int, dtype: str, many: int) -> dict[str, Any]:
    """Sums of thirds, of `many` more, and of what is neither float32 nor dense, that travel with a gradient."""

    def replica() -> Any:
        own = tf.cast(replica_id() + 1, tf.float32)
        exact = [own / 3, None, tf.fill([many], own / 7), tf.cast(own, tf.float64), tf.fill([0, 2], own)]
        sums, gradients = sum_with_riders(exact, [tf.cast(tf.fill([4], own / 4), dtype)])
        return [tf.zeros([]) if each is None else each for each in sums], gradients, tf.constant(sums[1] is None)

    results, count = _run(_strategy(num_replicas), replica)
    return {"results": results, "collectives": count}


def packs(num_replicas: int) -> dict[str, Any]:
    """Sums of seven packs and the gradient of their squares, and how many orders the collectives of a replica have."""
    strategy = _strategy(num_replicas)
    set_communication_options(strategy, None, Packing(bytes_per_pack=8))

    def replica() -> Any:
        own = tf.constant(float(replica_id() + 1))
        with tf.GradientTape() as tape:
            tape.watch(own)
            sums = all_reduce_sum([tf.fill([2], own * index) for index in range(7)])
            total = tf.add_n([tf.reduce_sum(tf.square(each)) for each in sums])
        return sums, tape.gradient(total, own)

    function = tf.function(lambda: strategy.run(replica))
    sums, gradients = function()
    graph = function.get_concrete_function().graph
    collectives = [op for op in graph.get_operations() if op.type.startswith("CollectiveReduce")]
    tokens = {each.name for op in collectives for each in op.inputs if each.dtype == tf.resource}
    local = strategy.experimental_local_results
    return {
        "sums": [local(each)[0].numpy() for each in sums],
        "gradient": float(local(gradients)[0]),
        "orders": len(tokens) // num_replicas,
    }


def alone(num_replicas: int) -> dict[str, Any]:
    """Sums where tensors of 20 bytes for each replica travel alone, sparse ones never; and the bytes of collectives."""
    strategy = _strategy(num_replicas)
    set_communication_options(strategy, None, Packing(0, alone_bytes=20))

    def replica() -> Any:
        own = tf.cast(replica_id() + 1, tf.float32)
        rows = tf.IndexedSlices(tf.fill((1, 32), own), tf.constant([1]), tf.constant([2, 32]))
        summed = all_reduce_sum([tf.fill([16], own), rows, tf.fill([5, 4], 2 * own), tf.fill([3], 3 * own), own, None])
        return [tf.convert_to_tensor(each) for each in summed[:-1]]

    function = tf.function(lambda: strategy.run(replica))
    local = strategy.experimental_local_results
    sums = [[each.numpy() for each in local(value)] for value in function()]
    graph = function.get_concrete_function().graph
    collectives = [op for op in graph.get_operations() if op.type.startswith("CollectiveReduce")]
    sizes = [4 * op.inputs[0].shape.num_elements() for op in collectives]
    return {"sums": sums, "sizes": sizes[: len(sizes) // num_replicas]}


def means(counts: tuple[int, ...]) -> list[float]:
    """`global_mean` of replicas with `counts` rows each, whose values are their replica's id."""

    def replica() -> tf.Tensor:
        own = replica_id()
        rows = tf.fill((counts[own],), float(own))
        return global_mean(tf.reduce_mean(rows), counts[own])

    results, _ = _run(_strategy(len(counts)), replica)
    return [float(result) for result in results]


def gathered(num_replicas: int, rows: int) -> dict[str, Any]:
    """`gather_rows` of a batch, and the gradient of the sum of its squares."""
    x = np.random.default_rng(0).normal(size=(rows, 2)).astype("float32")
    cuts = [rows * i // num_replicas for i in range(num_replicas + 1)]

    def replica() -> Any:
        own = replica_id()
        part = tf.constant(x[cuts[own] : cuts[own + 1]])
        share = make_share(*(tf.constant(number, tf.int64) for number in (len(part), rows, cuts[own])))
        with tf.GradientTape() as tape:
            tape.watch(part)
            whole = gather_with_own_slope(part, share)
            total = tf.reduce_sum(tf.square(whole))
        numbers = [gather_with_own_slope(number, share) for number in (1.0, -1, np.float32(0.5), None)]
        return whole, tape.gradient(total, part), tf.constant(numbers == [1.0, -1, 0.5, None])

    results, _ = _run(_strategy(num_replicas), replica)
    return {
        "x": x,
        "gathered": [r[0] for r in results],
        "gradients": [r[1] for r in results],
        "numbers stay": [bool(r[2]) for r in results],
    }


def all_rows(dtype: str) -> list[list[Any]]:
    """Whether each of 3 replicas, of 2, 0 and 3 rows, gathers them all."""
    texts = np.array(
        [[b"x", b""], [b"a\0b", "Z\u00fcrich".encode()], [b"", b"\xff"], [b"y", b"z"], [b"\0", b"w" * 300]], object
    )
    numbers = np.array([[0, 1], [1, 1], [1, 0], [0, 0], [1, 1]])
    most = {"uint8": 255, "int16": -32768, "uint32": 2**32 - 1, "uint64": 2**64 - 1}.get(dtype, 1)
    rows = texts if dtype == "string" else (numbers.astype("uint64" if most > 1 else "int64") * most).astype(dtype)

    def replica() -> list[tf.Tensor]:
        first = tf.constant([0, 2, 2, 5])[replica_id() : replica_id() + 2]
        own = tf.constant(rows, dtype)[first[0] : first[1]]
        return [all_gather(own)]

    results, _ = _run(_strategy(3), replica)
    return [[np.array_equal(each, rows) and each.dtype == rows.dtype for each in result] for result in results]


def squeezed_rows(num_replicas: int) -> tuple[str, list[list[Any]]]:
    """The error where the row of one replica has lost its axis, and what is gathered afterwards, of two rows each."""
    strategy = _strategy(num_replicas)

    def gathered(rows: Any) -> list[Any]:
        def replica() -> list[tf.Tensor]:
            own = tf.fill([rows(replica_id()), 2], float(replica_id()))
            return [all_gather(tf.squeeze(tf.compat.v1.placeholder_with_default(own, [None, None])))]

        return _run(strategy, replica)[0]

    try:
        gathered(lambda replica: 1 if replica == 0 else 2)
        message = ""
    except tf.errors.InvalidArgumentError as error:
        message = str(error)
    return message, [[each.tolist() for each in result] for result in gathered(lambda replica: 2)]


def slopes_of_gathered(counts: tuple[int, ...]) -> dict[str, Any]:
    """Slopes, of first and second order, of what replica i makes of all rows: their cubes, i + 1 times."""
    rows = np.random.default_rng(0).normal(size=(sum(counts), 2))
    first = np.cumsum([0, *counts])

    def replica() -> list[tf.Tensor]:
        own = tf.constant(rows[first[replica_id()] : first[replica_id() + 1]])
        with tf.GradientTape() as outer:
            outer.watch(own)
            with tf.GradientTape() as tape:
                tape.watch(own)
                value = (replica_id() + 1.0) * tf.reduce_sum(all_gather(own) ** 3)
            slope = tape.gradient(value, own)
            total = tf.reduce_sum(slope)
        return [slope, outer.gradient(total, own)]

    results, _ = _run(_strategy(len(counts)), replica)
    return {"rows": rows, "slopes": [np.concatenate(each) for each in zip(*results, strict=True)]}


def shares(counts: tuple[int, ...]) -> list[dict[str, float]]:
    """`agree_on_share` of replicas with `counts` rows each."""

    def replica() -> dict[str, Any]:
        share = agree_on_share(tf.constant(counts[replica_id()]))
        return {
            "examples": share.num_examples,
            "all": share.global_examples,
            "weight": tf.convert_to_tensor(share.weight),
            "first": share.first_row,
        }

    return _run(_strategy(len(counts)), replica)[0]

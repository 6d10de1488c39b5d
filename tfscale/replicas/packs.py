"""In which order do tensors travel, and how many of them together?

The gradients of the last layers are ready first. Sent in packs, in the order in which the backward pass finishes them,
they travel while it still works on the first layers; in one pack, all of them wait for the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

# Tensors are sent in pieces of at most this: one of 64 MB takes four times as long in one piece as in pieces of 8 MB.
_MOST_BYTES = 2**23
# So many packs that the first ones travel early, unless each would be too small to be worth a collective.
_NUM_PACKS = 8
# What PyTorch's DistributedDataParallel takes.
_GPUS_BYTES = 25 * 2**20
# To copy a tensor of so many bytes for each replica into a pack and out of it takes longer than one more collective
# within a process: what a collective costs grows with the square of the replicas, and what is copied with their number.
_ALONE_BYTES = 2**18
# A last pack that is smaller than this part of the others travels with the one before.
_SMALL = 0.25
# Operations that take no time beside the one that made their input.
_LIGHT = frozenset(("AddV2", "Cast", "Identity", "Mul", "MulNoNan", "RealDiv", "Reshape"))


class Packing(NamedTuple):
    """What travels together.

    Example:
        >>> from tfscale.replicas.packs import Packing
        >>> [Packing().pack_size(mib * 2**20) // 2**20 for mib in (1, 8, 32, 64, 1000)]
        [1, 1, 4, 8, 8]
        >>> Packing(bytes_per_pack=100).pack_size(2**20)
        100
        >>> [Packing().pack_size(mib * 2**20, are_ready=True) // 2**20 for mib in (1, 8, 64)]
        [1, 8, 8]
    """

    bytes_per_pack: int | None = None
    """About how many bytes travel together; 0 for all, None to go by what there is to send."""
    least_bytes: int = 2**20
    """Where it goes by that: less is not worth the latency of one more collective."""
    alone_bytes: int = 0
    """Where all would travel together: tensors of so many bytes, times the replicas, travel alone; 0 for none."""

    @property
    def usual_bytes(self) -> int:
        """Of a pack: what was chosen, or the least where it goes by what there is to send."""
        return self.least_bytes if self.bytes_per_pack is None else self.bytes_per_pack

    def pack_size(self, total_bytes: int, *, are_ready: bool = False) -> int:
        """About how many of `total_bytes` travel together: what was chosen, or an eighth within limits.

        Where all are ready nothing can travel early: one pack, unless it would be too large to be sent well.
        """
        if self.bytes_per_pack is not None:
            return self.bytes_per_pack
        most_bytes = max(self.least_bytes, _MOST_BYTES)
        num_packs = 1 if are_ready else _NUM_PACKS
        return min(max(-(-total_bytes // num_packs), self.least_bytes), most_bytes)


def choose_packing(requested: int | None, *, device_type: str, num_workers: int) -> Packing:
    """Chooses about how many bytes travel together, before anything was measured.

    Args:
        requested: As `Network` has it: the user's own choice, 0 for everything in one pack, or None.
        device_type: `"CPU"` or `"GPU"`.
        num_workers: Workers of the job.

    Example:
        >>> choose_packing(None, device_type="CPU", num_workers=1)
        Packing(bytes_per_pack=0, least_bytes=1048576, alone_bytes=262144)
        >>> choose_packing(None, device_type="GPU", num_workers=1).bytes_per_pack
        26214400
    """
    if device_type == "GPU":
        return Packing(_GPUS_BYTES if requested is None else requested)
    if requested is None and num_workers == 1:
        # Replicas on the cores of one machine have no time in which a core would only wait for a link.
        return Packing(0, alone_bytes=_ALONE_BYTES)
    return Packing(requested)


def divide_into_packs(sizes_bytes: Sequence[int], bytes_per_pack: int, alone_bytes: int = 0) -> list[list[int]]:
    """Divides tensors into packs of at least `bytes_per_pack`, in their order; a small rest goes with the last.

    Args:
        sizes_bytes: Of each tensor.
        bytes_per_pack: 0 for one pack.
        alone_bytes: Of tensors that have a pack of their own where there is one for all others, the last; 0 for none.

    Returns:
        The positions in each pack.

    Example:
        >>> divide_into_packs([6, 6, 1, 12, 1], 10)
        [[0, 1], [2, 3, 4]]
        >>> divide_into_packs([6, 6, 1, 12, 1], 0, alone_bytes=6)
        [[0], [1], [3], [2, 4]]
    """
    if alone_bytes and not bytes_per_pack:
        alone = [[position] for position, size in enumerate(sizes_bytes) if size >= alone_bytes]
        others = [position for position, size in enumerate(sizes_bytes) if size < alone_bytes]
        return [*alone, *([others] if others else [])]
    packs: list[list[int]] = [[]]
    weights = [0]
    for position, size in enumerate(sizes_bytes):
        if bytes_per_pack and weights[-1] >= bytes_per_pack:
            packs.append([])
            weights.append(0)
        packs[-1].append(position)
        weights[-1] += size
    if len(packs) > 1 and weights[-1] < _SMALL * bytes_per_pack:
        rest = packs.pop()
        packs[-1] += rest
    return [pack for pack in packs if pack]


def finishing_order(tensors: Sequence[Any]) -> list[int]:
    """The positions of `tensors` in the order in which they will be ready.

    In a graph that is the order in which their operations were made: TensorFlow writes the backward pass from the last
    layer to the first. Elsewhere it is the opposite of the given order, that of the layers.
    """
    backwards = list(reversed(range(len(tensors))))
    if tf.executing_eagerly():
        return backwards
    places = {op.name: place for place, op in enumerate(tf.compat.v1.get_default_graph().get_operations())}

    def finished(tensor: Any) -> int:
        # A constant, and what comes from outside of this graph, is there already.
        place = -1 if tensor.op.type == "Const" else places.get(tensor.op.name, -1)
        if place < 0 or tensor.op.type not in _LIGHT:
            return place
        # Gradients may have been weighted or cast in the order of the layers, after the backward pass was traced.
        return max(finished(each) for each in tensor.op.inputs)

    return sorted(backwards, key=lambda position: finished(_dense_part(tensors[position])))


def cut(tensor: Any, bytes_per_pack: int) -> list[Any]:
    """Flat pieces of a tensor that fills more than two packs; a smaller or sparse one as it is."""
    size = size_bytes(tensor)
    if not bytes_per_pack or size <= 2 * bytes_per_pack:
        return [tensor]
    elements, length = size // tensor.dtype.size, max(1, bytes_per_pack // tensor.dtype.size)
    lengths = [min(length, elements - first) for first in range(0, elements, length)]
    return list(tf.split(tf.reshape(tensor, [-1]), lengths))


def put_together(pieces: Sequence[Any], like: Any) -> Any:
    """The tensor of the shape of `like` that was cut into `pieces`."""
    return pieces[0] if len(pieces) == 1 else tf.reshape(tf.concat(list(pieces), axis=0), like.shape)


def joined(tensors: Sequence[Any]) -> tf.Tensor:
    """All elements of tensors of one dtype, as one vector.

    TensorFlow would join them by itself, with five operations more for each tensor, its shape and its size at run time:
    an eighth of the step of a model of many small variables.
    """
    length = tf.constant([-1])
    return tf.concat([each if each.shape.rank == 1 else tf.reshape(each, length) for each in tensors], axis=0)


def taken_apart(vector: tf.Tensor, like: Sequence[Any]) -> list[tf.Tensor]:
    """What was `joined`, in the shapes of `like`."""
    # Of tensors of an unknown shape the number of elements is a tensor.
    sizes = [each.shape.num_elements() if each.shape.is_fully_defined() else tf.size(each) for each in like]
    # As a rule several have the same shape.
    known: dict[tuple[int, ...], tf.Tensor] = {}

    def shape_of(each: Any) -> tf.Tensor:
        if not each.shape.is_fully_defined():
            return tf.shape(each)
        shape = tuple(each.shape)
        if shape not in known:
            known[shape] = tf.constant(shape, tf.int32)
        return known[shape]

    def shaped(part: tf.Tensor, each: Any) -> tf.Tensor:
        whole = part if each.shape.rank == 1 else tf.reshape(part, shape_of(each))
        # Where the number of elements of one is not known, TensorFlow knows that of no part.
        whole.set_shape(each.shape)
        return whole

    return [shaped(part, each) for part, each in zip(tf.split(vector, sizes), like, strict=True)]


def size_bytes(tensor: Any) -> int:
    """What the elements of a tensor take; 0 where its shape is not known, as of a sparse one."""
    elements = None if isinstance(tensor, tf.IndexedSlices) else tensor.shape.num_elements()
    return (elements or 0) * tensor.dtype.size


def is_sparse(value: Any) -> bool:
    """Whether it is a gradient that has only the rows that were looked up."""
    return isinstance(value, tf.IndexedSlices)


def is_dense(value: Any) -> bool:
    """Whether it is a tensor: neither a sparse gradient nor None."""
    return tf.is_tensor(value) and not isinstance(value, tf.IndexedSlices)


def _dense_part(tensor: Any) -> Any:
    return tensor.values if isinstance(tensor, tf.IndexedSlices) else tensor

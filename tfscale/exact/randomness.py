"""How does each replica draw random numbers of its own?

Keras keeps the state of every `SeedGenerator` as one variable with equal copies, so dropout, noise and augmentation
draw the same numbers on every replica. Here the state stays equal on all replicas, which keeps it one value to save
and to load, and the replica's number is mixed into each seed as it is drawn. Replica 0 draws what one replica would.
Logical replicas draw by their own numbers, wherever they run. What is drawn once for the whole batch all draw alike.
"""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.exact.divided_calls import divides_calls
from tfscale.framework.draws import drawn_shape
from tfscale.framework.fit import global_seed_generator, use_global_seed_generator
from tfscale.framework.layers import generators_of_layers
from tfscale.framework.one_trace import one_trace
from tfscale.framework.replicas import is_replicated
from tfscale.replicas.all_reduce import replica_id, replica_number
from tfscale.replicas.made import made_under
from tfscale.replicas.marks import mark_seed
from tfscale.replicas.replica_batch import local_replicas
from tfscale.replicas.replica_count import own_rows
from tfscale.replicas.share import Share, at_this_graph, current_share, is_in_own_loop, num_replicas
from tfscale.replicas.turns import around_turns
from tfscale.step_context import Flag, Slot

# The odd integer nearest to 2^32 / golden ratio: multiples of it stay far apart modulo 2^32 (Knuth, TAOCP 6.4).
_STRIDE = 0x9E3779B1
_WORD = 2**31 - 1


def replica_seed(seed: tf.Tensor, replica: int | tf.Tensor) -> tf.Tensor:
    """The seed of one replica's stream.

    first word -> (first word + replica * stride) mod (2^31 - 1); the second word counts draws and stays.

    Args:
        seed: Integer tensor `[2]`, as `SeedGenerator.next` returns it.
        replica: Global id of the replica, an integer or an integer tensor; 0 leaves the seed as it is.

    Returns:
        Integer tensor `[2]`, same dtype.
    """
    if isinstance(replica, int) and replica == 0:
        return seed
    offset = tf.cast(tf.math.floormod(tf.cast(replica, tf.int64) * _STRIDE, _WORD), seed.dtype)
    mixed = tf.stack([tf.math.floormod(seed[0] + offset, tf.constant(_WORD, seed.dtype)), seed[1]])
    return mixed if isinstance(replica, int) else tf.where(tf.equal(replica, 0), seed, mixed)


def seed_generators(strategy: tf.distribute.Strategy, model: keras.Model | None = None) -> list[Any]:
    """What steps draw from: Keras's generators that `strategy` or `model` know, and the one without a seed."""
    general = global_seed_generator()
    found = [] if model is None else generators_of_layers(model)
    found += [*made_under(strategy).seed_generators, *([] if general is None else [general])]
    return list({id(generator): generator for generator in found}.values())


def make_general_generator(strategy: tf.distribute.Strategy) -> None:
    """Makes the generator behind `keras.random` without a seed, where there is none yet.

    Keras makes it at the first draw, which in a step that is divided is in a place where no variable can be made.

    Args:
        strategy: Whose replicas draw.
    """
    if global_seed_generator() is not None:
        return
    # Its seed is drawn from Python's numbers, which a program that never draws without a seed would find changed.
    state = random.getstate()
    with strategy.scope():
        global_seed_generator(make=True)
    random.setstate(state)


def replicate_general_generator(strategy: tf.distribute.Strategy) -> None:
    """Gives every replica a copy of the state behind `keras.random` without a seed, which Keras makes for all.

    It makes it where it is drawn from first: before there were replicas, or in a step, where all would share one.

    Args:
        strategy: Whose replicas draw.
    """
    if strategy.num_replicas_in_sync == 1:
        return
    make_general_generator(strategy)
    shared = global_seed_generator()
    if shared is None or is_replicated(shared.state):
        return
    with strategy.scope():
        own = keras.random.SeedGenerator(int(shared.state.numpy()[0]))
    own.state.assign(shared.state)
    use_global_seed_generator(own)


def separate_generators(model: keras.Model) -> list[keras.random.SeedGenerator]:
    """Those of `seed_generators` of which every replica has a copy of the state."""
    extended = model.distribute_strategy.extended
    found = seed_generators(model.distribute_strategy, model)
    return [generator for generator in found if extended.variable_created_in_scope(generator.state.value)]


def separate_random_streams(strategy: tf.distribute.Strategy, model: keras.Model | None = None) -> None:
    """Makes every seed generator draw an independent stream on every replica, whatever holds it. Idempotent.

    Args:
        strategy: Whose replicas they are.
        model: Whose layers may hold some that were made elsewhere.
    """
    for generator in seed_generators(strategy, model):
        if not isinstance(vars(generator).get("next"), functools.partial):
            generator.next = functools.partial(_next_of_replica, generator, _Shapes())


@contextlib.contextmanager
def seeds_of_replicas(fn: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Lets `fn`, run on replicas, draw on each of them by itself, where Keras or TensorFlow have a seed for all.

    `keras.random` without a generator keeps one for each thread, and replicas are traced by threads of their own.
    `tf.random` gives an operation the seed of its graph and its own number there: in a loop or a function inside of
    `fn` all replicas, and in `fn` itself all workers, would draw the same numbers after `tf.random.set_seed`.

    Yields:
        What is to be run in its place.
    """
    general, graph = global_seed_generator(), tf.compat.v1.get_default_graph()
    seed = None if tf.executing_eagerly() else graph.seed

    @tf.autograph.experimental.do_not_convert
    def on_replica(*args: Any, **kwargs: Any) -> Any:
        use_global_seed_generator(general)
        with at_this_graph():
            return by_own_seed(*args, **kwargs)

    @tf.autograph.experimental.do_not_convert
    def by_own_seed(*args: Any, **kwargs: Any) -> Any:
        if seed is None or one_trace() is not None:
            return fn(*args, **kwargs)
        own = _graph_seed(seed, replica_id())

        def draw_by_own(_: Any = None) -> None:
            graph.seed = own

        draw_by_own()
        with around_turns(lambda: None, draw_by_own):
            return fn(*args, **kwargs)

    try:
        yield on_replica
    finally:
        if seed is not None:
            graph.seed = seed


def draw_as_first_here(strategy: tf.distribute.Strategy) -> None:
    """Has what is traced in this graph draw as this worker's first replica: functions in it are taken for that one."""
    graph = tf.compat.v1.get_default_graph()
    if graph.seed is not None:
        graph.seed = _graph_seed(graph.seed, local_replicas(strategy).first)


def _graph_seed(seed: int, replica: int) -> int:
    return (seed + replica * _STRIDE) % _WORD if replica else seed


_ALIKE = Flag("draws_alike")


def drawing_alike() -> contextlib.AbstractContextManager[None]:
    """Has every replica draw what one would, in what all of them do alike: the update of their weights."""
    return _ALIKE.raised()


_UNDRAWN = Slot[str | None]("draws_nothing_in")


def refusing_draws(what: str) -> contextlib.AbstractContextManager[None]:
    """Refuses what would be drawn meanwhile by the number of a replica, where the run is that of logical ones.

    Args:
        what: Is run, for people.
    """
    return _UNDRAWN.carrying(what)


def made_outside(received: str) -> ModelError:
    """The error for a generator that is all devices' own, where replicas draw from it."""
    return ModelError(
        "A generator from which replicas draw must be made under the strategy's scope.\n"
        f"Received: {received}. Give the layer a `keras.random.SeedGenerator` that is made inside of "
        "`with dp.scope():`."
    )


def _number_of_part(share: Share | None) -> Any:
    """That of this replica; in a later micro-step another one, so that no two of all replicas draw alike."""
    index = 0 if share is None else share.micro_step
    return replica_number() if isinstance(index, int) and index == 0 else replica_number() + index * num_replicas()


def is_for_all_rows(shape: Sequence[int | None] | None, sizes: Collection[int] | None) -> bool:
    """Whether what is drawn is one thing for the whole batch: a scale, noise on weights, where pictures are cropped.

    What is drawn for each row has as many, whose number a traced step leaves open as a rule. Where it is known, an axis
    of so many, or of a multiple, as of all words of the rows, is taken for theirs: alike on all replicas.

    Args:
        shape: Of what is drawn, as `drawn_shape` returns it.
        sizes: How many rows replicas have; none where only a replica's own number is known; None where none is.

    Example:
        >>> is_for_all_rows([], None), is_for_all_rows([4, 8], None), is_for_all_rows([None, 8], None)
        (True, True, False)
        >>> is_for_all_rows([4, 8], [3]), is_for_all_rows([4, 9], [3])
        (True, False)
        >>> is_for_all_rows([4, 8], []), is_for_all_rows([], []), is_for_all_rows(None, None)
        (False, True, False)
    """
    if shape is None or None in shape:
        return False
    if sizes is None or not shape:
        return True
    return bool(sizes) and all(each is not None and each % size for each in shape for size in sizes if size)


_OPEN = Flag("rows_are_open")


def leaving_rows_open(is_open: bool = True) -> contextlib.AbstractContextManager[None]:
    """Says whether a step is traced with any number of rows, to be called in each thread of a replica.

    If so, what is drawn of a known shape meanwhile has none, and is drawn so where the number is known, too.
    """
    return _OPEN.carrying(is_open)


class _Shapes:
    """What a generator draws, as far as traces tell that leave the number of rows open.

    A step that runs eagerly, and one for batches of one size, shows rows as any other number.
    """

    def __init__(self) -> None:
        self._without_rows, self._of_rows = set[tuple[int, ...]](), set[tuple[int | None, ...]]()

    def note(self, shape: Sequence[int | None]) -> None:
        """Notes what such a trace draws."""
        known = tuple(each for each in shape if each is not None)
        if len(known) == len(shape):
            self._without_rows.add(known)
        else:
            self._of_rows.add(tuple(shape))

    def have_no_rows(self, shape: Sequence[int | None]) -> bool:
        """Whether a shape was traced as one for the whole batch, and none of rows is like it."""
        return tuple(shape) in self._without_rows and not any(_is_like(shape, each) for each in self._of_rows)


def _is_like(shape: Sequence[int | None], other: Sequence[int | None]) -> bool:
    return len(shape) == len(other) and all(each in (None, own) for own, each in zip(shape, other, strict=True))


def _is_for_all_rows(share: Share | None, known: _Shapes) -> bool:
    if is_in_own_loop():
        # It may be one over rows.
        return False
    shape = drawn_shape()
    own_size = () if isinstance(own_rows(), int) else None
    sizes = own_size if share is None else share.static_sizes
    if shape is None:
        return False
    if _OPEN.is_raised:
        known.note(shape)
    return (sizes is not None and known.have_no_rows(shape)) or is_for_all_rows(shape, sizes)


def _next_of_replica(generator: keras.random.SeedGenerator, known: _Shapes, ordered: bool = True) -> tf.Tensor:
    if _UNDRAWN.value is not None:
        raise ModelError(
            "With `logical_replicas` random numbers are drawn in training, and by Keras's own `test_step`.\n"
            f"Received: {generator.name!r}, drawn from in {_UNDRAWN.value}, where it would depend on the number of "
            "devices. Draw in training only, or leave `logical_replicas` out."
        )
    share = current_share()
    are_several = (share is not None and share.logical is not None) or num_replicas() > 1
    if are_several and tf.distribute.get_replica_context() and not is_replicated(generator.state):
        raise made_outside(f"{generator.name!r}, made outside of it")
    is_for_all = _ALIKE.is_raised or _is_for_all_rows(share, known)
    seed = type(generator).next(generator, ordered)
    if share is not None and share.logical is not None and not is_for_all:
        return replica_seed(seed, share.logical)
    # Between the calls of layers that are divided, every replica draws what one would.
    is_alone = is_for_all or (divides_calls() and num_replicas() == 1)
    if tf.distribute.get_replica_context() and not is_alone:
        seed = replica_seed(seed, _number_of_part(share))
    mark_seed(seed, is_own=not is_alone)
    return seed

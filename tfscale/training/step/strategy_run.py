"""What becomes of a function that a loop by hand gives to `strategy.run`?"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfscale.cluster.place import ON_BATCH
from tfscale.exact.randomness import seeds_of_replicas, separate_random_streams
from tfscale.framework.autograph import converted_here, in_place_of
from tfscale.replicas.branches import refusing_lone_collectives
from tfscale.replicas.uncaught import begin_loop
from tfscale.training.step.eager_loops import counting_rows, look_at_traced, telling_of_updates
from tfscale.training.step.hand_loops import prepare_function, rows_here
from tfscale.training.step.hand_means import MeansByRows
from tfscale.training.step.loop_values import LoopValues
from tfscale.training.step.unprepared import CALLS, calling_model, is_prepared, refuse_on_workers


def run_loops(
    strategy: tf.distribute.Strategy,
    look_at_loop: Callable[[tf.distribute.Strategy, int | None, Sequence[Sequence[Any]], Any], None],
) -> None:
    """Makes `strategy.run` prepare what loops by hand give to it, and `strategy.reduce` take means by rows.

    Args:
        strategy: To be changed.
        look_at_loop: Looks at what a function of a loop by hand has become in a graph; told of the strategy, of the
            number of operations that the graph had before, None where it ran eagerly, of the rows of each replica of
            this process, of each batch that it is given, and of the results.
    """
    run, reduce, own = strategy.run, strategy.reduce, strategy.experimental_local_results
    means = MeansByRows(strategy)
    lifted: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def lift(fn: Any) -> Any:
        given = weakref.ref(fn)
        return tf.function(lambda *args: run_once(given(), *args), autograph=False, reduce_retracing=True)

    @in_place_of(run)
    def run_once(fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        if isinstance(fn, tf.types.experimental.PolymorphicFunction) and tf.config.functions_run_eagerly():
            fn = fn.python_function
        if tf.executing_eagerly() and isinstance(fn, tf.types.experimental.PolymorphicFunction):
            # Replicas that are run take turns, and could not send anything from inside of it.
            if fn not in lifted:
                lifted[fn] = lift(fn)
            results = lifted[fn](args, kwargs, options)
            return means.with_rows(results, _one_each(rows_here(strategy, args, kwargs or {})), (args, kwargs))
        is_by_hand = calling_model(CALLS + ON_BATCH) is None
        if is_by_hand:
            begin_loop(strategy, fn)
        given, fn = fn, converted_here(fn)
        values = LoopValues(strategy, given) if is_by_hand else None
        if values is not None:
            if tf.executing_eagerly():
                look_at_traced(strategy, given, values.left_by(lambda: run_once(given, args, kwargs, options)))
            fn = values.kept_by(prepare_function(strategy, given, fn, args, kwargs or {}))
        separate_random_streams(strategy)
        known = None if tf.executing_eagerly() else len(tf.compat.v1.get_default_graph().get_operations())
        rows = rows_here(strategy, args, kwargs or {}) if is_by_hand else [[]]
        telling = telling_of_updates(strategy, given) if is_by_hand else contextlib.nullcontext()
        with (
            telling,
            counting_rows(_one_each(rows)),
            refusing_lone_collectives(strategy),
            seeds_of_replicas(fn) as on_replica,
        ):
            results = run(on_replica, args, kwargs, options)
        if values is not None:
            values.check()
            look_at_loop(strategy, known, rows, results)
            results = means.with_rows(results, _one_each(rows), (args, kwargs))
        model = calling_model(ON_BATCH)
        if model is None or is_prepared(model):
            return results
        refuse_on_workers(model, strategy)
        # Keras gave the whole batch to every replica, and all have computed the same.
        return tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], results)

    strategy.run, strategy.reduce = run_once, in_place_of(reduce)(means.reduce)
    strategy.experimental_local_results = in_place_of(own)(means.own)


def _one_each(rows: Sequence[Sequence[Any]]) -> list[Any]:
    """The number of rows of each replica; None where there are several, or none."""
    return [each[0] if len(each) == 1 else None for each in rows]

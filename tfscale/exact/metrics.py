"""What do the logs of a step say, when each replica has counted only its own rows?

Keras keeps one copy of a metric's state per replica, to be added up when it is read. The copies are added in the
collective that reduces the gradients, and the results are computed from the sums. What is counted per example needs no
more than that. One number of a whole batch, such as its loss, is counted in parts that make one.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.exact.foreign import is_of_keras
from tfscale.exact.gather import gather_rows
from tfscale.exact.metrics_of_loops import number_as_counted
from tfscale.exact.terms import as_mean, is_gathered, meet_term, tells_whole_results
from tfscale.framework.autograph import in_place_of
from tfscale.framework.losses import arguments_of_function, metric_function
from tfscale.framework.models import all_metrics
from tfscale.replicas.all_reduce import all_reduce_sum, replica_number
from tfscale.replicas.graph_walk import depends_on
from tfscale.replicas.made import made_under
from tfscale.replicas.own_share import make_lone_share
from tfscale.replicas.replica_count import is_in_loop
from tfscale.replicas.share import Share, current_share, in_share
from tfscale.step_context import Flag, Slot


class Given(list[tuple[keras.metrics.Metric, Any]]):
    """Metrics that a step asked for results, and what came back."""

    has_earlier = False
    """Whether one of them counted more rows afterwards, so that its result is that of an earlier time."""


# What metrics have told the step.
_GIVEN = Slot[Given | None]("results")
# By a metric variable's id, what it held before the step, where that is to be put back.
_BEFORE = Slot[dict[int, tf.Tensor] | None]("states_before", shown=len)
RESETTING = Flag("resets_metrics")
"""Whether what a variable holds after an assignment is of no interest to anybody."""


def metrics_of(model: keras.Model) -> list[keras.metrics.Metric]:
    """The metrics of `model` one by one, and any other made under its strategy, whatever holds it."""
    found = [*all_metrics(model), *made_under(model.distribute_strategy).metrics]
    return list({id(metric): metric for metric in found}.values())


def reset(metrics: Iterable[keras.metrics.Metric]) -> None:
    """Resets metrics by themselves on each worker.

    TensorFlow reads what it has assigned, which is a collective for every variable of a metric; and which metrics are
    still there, of models that are gone, may be another number on each worker.
    """
    with RESETTING.raised():
        for metric in metrics:
            metric.reset_state()


def local_metric_states(variables: Iterable[keras.Variable]) -> list[tf.Tensor]:
    """This replica's states, in the order of the metrics' variables."""
    return [tf.convert_to_tensor(variable.value) for variable in variables]


@contextlib.contextmanager
def unchanged_by_stand_in(variables: Sequence[keras.Variable], share: Share) -> Iterator[None]:
    """Takes back what the metrics counted meanwhile, if this replica's only row is a stand-in."""
    if (share.num_replicas == 1 and share.logical is None) or tf.get_static_value(share.num_examples):
        yield
        return
    before = local_metric_states(variables)
    left = dict(zip(map(id, variables), before, strict=True))
    with _BEFORE.carrying(left):
        yield
    for variable in variables:
        if (state := left.get(id(variable))) is not None:
            variable.assign(tf.where(share.num_examples > 0, variable.value, state))


def _without_stand_in(variables: Sequence[keras.Variable], share: Share) -> list[tf.Tensor]:
    """This replica's states in the middle of a step, as they will be once a stand-in is taken back."""
    states, before = local_metric_states(variables), _BEFORE.value
    if before is None:
        return states
    pairs = zip(variables, states, strict=True)
    return [tf.where(share.num_examples > 0, state, before.get(id(variable), state)) for variable, state in pairs]


@contextlib.contextmanager
def using_states(variables: Sequence[keras.Variable], states: Sequence[tf.Tensor]) -> Iterator[None]:
    """Makes metrics compute their results from `states`; their variables are not read."""
    with keras.StatelessScope(state_mapping=list(zip(variables, states, strict=True))):
        yield


def metric_results(model: keras.Model, states: Sequence[tf.Tensor]) -> dict[str, Any]:
    """The results of all metrics of `model`, by the names that Keras logs them under."""
    with using_states(model.metrics_variables, states):
        return dict(model.get_metrics_result())


def meet_updates(metrics: Iterable[keras.metrics.Metric]) -> None:
    """Makes metrics count, inside of a step, as on one replica, and tells who asks for their results. Idempotent."""
    for metric in metrics:
        reference = weakref.ref(metric)
        if "update_state" not in vars(metric):
            metric.update_state = in_place_of(type(metric).update_state)(functools.partial(_update, reference))
        if "result" not in vars(metric):
            metric.result = in_place_of(type(metric).result)(functools.partial(_result, reference))


def _update(reference: weakref.ref[keras.metrics.Metric], *args: Any, **kwargs: Any) -> Any:
    metric: Any = reference()
    update, share = type(metric).update_state.__get__(metric), current_share()
    if _GIVEN.value is not None and any(metric is asked for asked, _ in _GIVEN.value):
        _GIVEN.value.has_earlier = True
    if share is None:
        if not (is_in_loop() and type(metric).update_state in _COUNTING_NUMBERS and _is_one_number(args)):
            return update(*args, **kwargs)
        weight = args[1] if len(args) > 1 else kwargs.get("sample_weight")
        value, weight = number_as_counted(metric, args[0], weight)
        return update(value, sample_weight=weight)
    is_divided = share.num_replicas > 1 or share.logical is not None
    if is_divided and (is_gathered(metric) or _may_need_all_rows(metric, args, share)):
        _refuse_parts(metric, share)
        return _update_with_all_rows(metric, args, kwargs)
    if type(metric).update_state not in _COUNTING_NUMBERS or len(args) != 1 or kwargs.get("sample_weight") is not None:
        return update(*args, **kwargs)
    value = tf.convert_to_tensor(args[0])
    if value.shape.rank != 0 and not _is_list_of_numbers(args[0]):
        return update(*args, **kwargs)
    is_sum = meet_term("metric", metric, f"metric {metric.name!r}", [value])
    if share.is_whole:
        return update(value)
    # One number of the batch: over all replicas it counts once.
    return update(as_mean(value, share) if is_sum else value, sample_weight=tf.cast(share.weight, metric.dtype))


def _refuse_parts(metric: keras.metrics.Metric, share: Share) -> None:
    if share.logical is not None or share.is_part:
        raise ModelError(
            "With `micro_batch` or `logical_replicas` a metric must count each row by itself, or numbers of them.\n"
            f"Received: metric {metric.name!r}, which needs all rows of a batch at the same time. Leave it out of "
            "`compile` and compute it from `predict`, or leave these arguments out."
        )


def _is_one_number(args: Sequence[Any]) -> bool:
    return len(args) > 0 and bool(tf.convert_to_tensor(args[0]).shape.rank == 0)


def _is_list_of_numbers(value: Any) -> bool:
    """Whether something is a list of numbers of the batch, such as `[loss]`, and not of its rows."""
    return isinstance(value, list | tuple) and all(tf.convert_to_tensor(each).shape.rank == 0 for each in value)


def _may_need_all_rows(metric: keras.metrics.Metric, args: Sequence[Any], share: Share) -> bool:
    """Whether a metric averages a function of labels and predictions that returns one number of all of them.

    Or a function of somebody else's, in which rows may meet though it returns a number for each: a recall among the
    rows of a batch is the same for few rows or many, as long as it is 1.
    """
    function = metric_function(metric)
    if function is None or len(args) < 2:
        return False
    may_be = function in _MAY_BE_ONE_NUMBER or isinstance(function, keras.losses.Loss)
    if is_of_keras(function) and not may_be and getattr(metric, "axis", 0) is not None:
        return False
    can_be_sent = all(isinstance(each, tf.Tensor) and each.dtype != tf.string for each in args[:2])
    if not is_of_keras(function) and can_be_sent and not share.is_part:
        return True
    # Looked at while tracing, and left out of the graph by TensorFlow, since nobody uses it.
    value = tf.convert_to_tensor(function(*args[:2], **arguments_of_function(metric)))
    return value.shape.rank == 0


def _update_with_all_rows(metric: keras.metrics.Metric, args: Any, kwargs: Any) -> None:
    whole_args, whole_kwargs = keras.tree.map_structure(_gathered, (args, kwargs))
    before = local_metric_states(metric.variables)
    if not is_of_keras(type(metric)):
        # Whoever resets it to something else than zero has given each replica a part.
        for variable, state in zip(metric.variables, all_reduce_sum(before), strict=True):
            variable.assign(state)
        before = [tf.zeros_like(state) for state in before]
    # The states are added up, so one replica counts for all, and always the same: it goes on from what it has counted.
    # It has all rows, also where its own is a stand-in.
    counts_for_all = tf.equal(replica_number(), 0)
    if _BEFORE.value is not None:
        for variable in metric.variables:
            _BEFORE.value.pop(id(variable), None)
    # A metric that it keeps counts as on one replica, too.
    with in_share(make_lone_share(tf.constant(1, tf.int64))):
        type(metric).update_state(metric, *whole_args, **whole_kwargs)
    for variable, after, state in zip(metric.variables, local_metric_states(metric.variables), before, strict=True):
        variable.assign(tf.where(counts_for_all, after, state))


def _gathered(value: Any) -> Any:
    return gather_rows(value) if tf.is_tensor(value) and value.shape.rank != 0 else value


# Of Keras's own.
_MAY_BE_ONE_NUMBER = (keras.losses.dice, keras.losses.tversky)
_COUNTING_NUMBERS = (keras.metrics.Mean.update_state, keras.metrics.Sum.update_state)


@contextlib.contextmanager
def remembering_results() -> Iterator[Given]:
    """Collects who was asked for a result meanwhile, and what came back."""
    given = Given()
    with _GIVEN.carrying(given):
        yield given


def computes_of_results(logs: Any, given: Given) -> bool:
    """Whether a step has logs of metrics' results that are no more than what they count in the end.

    Made of such results, in a graph, or asked for before the metric has counted the rows of the step.
    """
    if given.has_earlier:
        return True
    results = [leaf for _, result in given for leaf in keras.tree.flatten(result)]
    # What comes out of a function within the step, such as one that is a `tf.function`, is no longer the result itself.
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    if any(tf.is_symbolic_tensor(each) and each.graph is not graph for each in results):
        return True
    others = [leaf for leaf in keras.tree.flatten(logs) if not any(leaf is each for each in results)]
    made_by = {id(each.op) for each in results if tf.is_symbolic_tensor(each)}
    symbolic = [leaf for leaf in others if tf.is_symbolic_tensor(leaf)]
    return depends_on(symbolic, lambda op: id(op) in made_by)


def _result(reference: weakref.ref[keras.metrics.Metric]) -> Any:
    metric: Any = reference()
    share = current_share()
    if share is not None and share.num_replicas > 1 and tells_whole_results():
        states = all_reduce_sum(_without_stand_in(metric.variables, share))
        with using_states(metric.variables, states):
            return type(metric).result(metric)
    result = type(metric).result(metric)
    if _GIVEN.value is not None:
        _GIVEN.value.append((metric, result))
    return result

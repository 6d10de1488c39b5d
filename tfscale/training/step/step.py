"""What does one replica do in one step?

The forward and backward pass on its own rows, one reduction, and the same update as every other replica.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfscale.exact import metrics
from tfscale.exact.batch_norm import batch_norm_layers, local_statistics, moving_statistics
from tfscale.exact.divided_calls import dividing_calls
from tfscale.exact.gather import gather_batch
from tfscale.exact.losses import global_loss_attributes
from tfscale.exact.plain_step import keras_step, meet_loss, update_metrics
from tfscale.exact.terms import Divides, Terms, as_mean, meet_term, meeting_terms
from tfscale.framework.losses import loss_tracker
from tfscale.framework.models import call_model, compute_loss_of
from tfscale.gradients import noise, optimizers
from tfscale.gradients.double_buffer import sending_what_waits, takes_turns
from tfscale.gradients.micro_steps import Division, adds_in_tree, in_own_share, sum_over_micro_steps
from tfscale.gradients.parts import Part, Run
from tfscale.gradients.step_state import first_replicas
from tfscale.gradients.updaters import accumulates, held_optimizers, innermost
from tfscale.replicas.all_reduce import all_reduce_sum, replica_number
from tfscale.replicas.own_share import make_lone_share, share_of
from tfscale.replicas.progress import counting_reductions
from tfscale.replicas.replica_batch import ReplicaBatch
from tfscale.replicas.share import Share, current_share, in_share
from tfscale.replicas.xla import run_compiled
from tfscale.training.step import checksums
from tfscale.training.step.logical_replicas import refuse_division_by_calls
from tfscale.training.step.non_finite import Telling, not_finite, telling, watching
from tfscale.training.step.sent_along import SentAlong, weighted
from tfscale.training.step.several_sizes import refuse_several_sizes

Logs = dict[str, Any]


def train_step(
    model: keras.Model,
    batch: ReplicaBatch,
    batch_norm: str,
    division: Division | None,
    *,
    terms: Terms,
    sends_states: bool,
) -> list[tf.Tensor]:
    """One update of `model` from this replica's rows; to be called in a replica context.

    Args:
        model: A prepared model with Keras's own `train_step`.
        batch: This replica's rows.
        batch_norm: `"local"` or `"synchronized"`.
        division: Of the rows into micro-steps or logical replicas; None for one pass over all of them.
        terms: What is known of its losses and metrics.
        sends_states: Whether metric states travel in this step. They are whole at any time: `send_states` after the
            last of several steps is enough.

    Returns:
        The metric states summed over all replicas, of which `metrics.metric_results` makes logs; empty if not sent.
    """
    with counting_reductions(model), sending_what_waits([model.optimizer]), meeting_terms(terms):
        if terms.divides:
            refuse_division_by_calls(division)
            return _states_of_all_rows(model, "train_step", batch, terms.divides, batch_norm, sends_states=sends_states)
        return _default_train_step(model, batch, batch_norm, division, sends_states)


def test_step(
    model: keras.Model, batch: ReplicaBatch, division: Division | None, *, terms: Terms, sends_states: bool
) -> list[tf.Tensor]:
    """Updates the metrics of `model` from this replica's rows; as `train_step` without the update."""
    if terms.divides:
        refuse_division_by_calls(division)
        with meeting_terms(terms):
            return _states_of_all_rows(model, "test_step", batch, terms.divides, sends_states=sends_states)
    share = share_of(batch)

    def forward(part: Part) -> tf.Tensor:
        # Something has to be returned, or nothing would be computed; a loss may be a vector.
        return tf.reduce_sum(_forward(model, part.batch.data, part.share, training=False))

    def run(part: Part) -> list[Any]:
        return [run_compiled(model, lambda: in_own_share(part, forward))]

    with in_share(share), meeting_terms(terms):
        _sum_over_parts(model, run, batch, share, division, [])
    return send_states(model) if sends_states else []


def send_states(model: keras.Model) -> list[tf.Tensor]:
    """The metric states summed over all replicas, by a reduction of their own."""
    with counting_reductions(model):
        return SentAlong(watch=telling(model)).with_states(model.metrics_variables).reduce(model)


def own_train_step(model: keras.Model, batch: ReplicaBatch, batch_norm: str, *, terms: Terms) -> Logs:
    """As `train_step` for a class that defines its own: runs that, and returns its logs for the global batch.

    Gradients are weighted and reduced where the user's step hands them to an optimizer.
    """
    with counting_reductions(model), sending_what_waits(held_optimizers(model)), meeting_terms(terms):
        share = share_of(batch)
        if terms.divides:
            return _logs_of_all_rows(model, "train_step", batch, terms.divides, batch_norm)
        refuse_several_sizes(batch)
        sent = _sent_by_training(model, batch_norm, share, batch)
        with in_share(share._replace(weights_gradients=True)), metrics.remembering_results() as given:
            with _as_on_one_replica(model, share):
                logs = model.train_step(batch.data)
            return _global_logs(model, logs, given, sent)


def _sent_by_training(model: keras.Model, batch_norm: str | None, share: Share, batch: ReplicaBatch) -> SentAlong:
    """What a step of one's own sends besides gradients, or one on all rows; to be called before it."""
    if batch_norm is None:
        return SentAlong()
    watch = watching(model, share, batch, holds_all=True)
    return SentAlong(statistics=local_statistics(model, batch_norm), slots=checksums.sent_along(model), watch=watch)


def own_test_step(model: keras.Model, batch: ReplicaBatch, *, terms: Terms) -> Logs:
    """As `test_step` for a class that defines its own."""
    if terms.divides:
        with meeting_terms(terms):
            return _logs_of_all_rows(model, "test_step", batch, terms.divides)
    refuse_several_sizes(batch)
    share = share_of(batch)
    with in_share(share), meeting_terms(terms), metrics.remembering_results() as given:
        with _as_on_one_replica(model, share):
            logs = model.test_step(batch.data)
        return _global_logs(model, logs, given)


@contextlib.contextmanager
def _on_all_rows(
    model: keras.Model, name: str, batch: ReplicaBatch, divides: Divides, share: Share
) -> Iterator[tuple[Logs, Any]]:
    """Runs a step that mixes rows, and gets all of them: the calls of its layers are divided.

    Yields, in the share of what the first replica alone has counted, the logs, and what metrics told the step.
    """
    with in_share(share):
        data = gather_batch(batch)
    count = tf.cast(tf.equal(replica_number(), 0), tf.float32)
    first = share._replace(num_examples=count, global_examples=tf.constant(1.0), weight=tf.cast(count, tf.float64))
    with (
        metrics.remembering_results() as given,
        metrics.unchanged_by_stand_in(_counted(model), first),
        dividing_calls(model, divides, share, make_lone_share(share.global_examples)),
    ):
        logs = keras_step(model, name, data)
    with in_share(first):
        yield logs, given


def _logs_of_all_rows(
    model: keras.Model,
    name: str,
    batch: ReplicaBatch,
    divides: Divides,
    batch_norm: str | None = None,
) -> Logs:
    share = share_of(batch)
    sent = _sent_by_training(model, batch_norm, share, batch)
    with _on_all_rows(model, name, batch, divides, share) as (logs, given):
        return _global_logs(model, logs, given, sent)


def _states_of_all_rows(
    model: keras.Model,
    name: str,
    batch: ReplicaBatch,
    divides: Divides,
    batch_norm: str | None = None,
    *,
    sends_states: bool,
) -> list[tf.Tensor]:
    share = share_of(batch)
    sent = _sent_by_training(model, batch_norm, share, batch)
    with _on_all_rows(model, name, batch, divides, share) as (logs, _):
        first: Any = current_share()
        sent = sent.after(logs, first)
        sent = sent.with_states(model.metrics_variables) if sends_states else sent
        return sent.reduce(model)


def _default_train_step(
    model: keras.Model, batch: ReplicaBatch, batch_norm: str, division: Division | None, sends_states: bool
) -> list[tf.Tensor]:
    """Keras's own `train_step`, with its pass over all rows or over parts of them."""
    optimizer, variables, share = model.optimizer, model.trainable_weights, share_of(batch)
    # In micro-steps even synchronised layers see a part at a time.
    layers = batch_norm_layers(model)
    statistics = local_statistics(model, batch_norm) if division is None else moving_statistics(layers)
    # Before the forward pass, in which local BatchNormalization lets the copies differ until the reduction.
    slots = checksums.sent_along(model)
    watch = watching(model, share, batch, holds_all=takes_turns(optimizer))

    def forward_and_backward(part: Part) -> list[Any]:
        with tf.GradientTape() as tape:
            loss = _forward(model, part.batch.data, part.share, training=True)
            weight = tf.cast(optimizers.gradient_weight(optimizer, part.share), loss.dtype)
            scaled = optimizer.scale_loss(loss * weight)
        gradients = tape.gradient(scaled, variables)
        return [*gradients, *not_finite(model, loss, gradients), *noise.weight_of_pass(model, part.share)]

    def run(part: Part) -> list[Any]:
        found = run_compiled(model, lambda: in_own_share(part, forward_and_backward))
        found = noise.note_pass(model, part, found, len(variables))
        return [*(weighted(variable, part.share) for variable in statistics), *found]

    with in_share(share):
        num_global = len(statistics) + len(variables)
        sums = _sum_over_parts(model, run, batch, share, division, statistics, num_global)
        shared, rest = sums[: len(statistics)], sums[len(statistics) :]
        are_whole = adds_in_tree(division)
        shared = [first_replicas(each) for each in shared] if are_whole else shared
        if watch is not None:
            watch.note_passes(*rest[len(variables) :])
        sent = SentAlong([], statistics, shared, slots, watch)
        sent = sent.with_states(model.metrics_variables) if sends_states else sent
        return _update(model, rest[: len(variables)], sent, are_whole=are_whole)


def _sum_over_parts(
    model: keras.Model,
    run: Run,
    batch: ReplicaBatch,
    share: Share,
    division: Division | None,
    statistics: Sequence[keras.Variable],
    num_global: int = 0,
) -> list[Any]:
    """What `run` returns for the rows of this replica: at once, or added up over micro-steps."""
    if division is None:
        return run(Part(batch, share, 0))
    return sum_over_micro_steps(model, run, batch, share, division, statistics, _counted(model), num_global)


def _update(model: keras.Model, gradients: list[Any], sent: SentAlong, *, are_whole: bool) -> list[tf.Tensor]:
    """Keras's own update, with one reduction that carries gradients, metric states and batch statistics.

    Where the gradients stay here, are whole already, or travel in the next step, the others have one of their own.
    """
    optimizer = model.optimizer
    if are_whole:
        noise.note_total(innermost(optimizer), gradients, optimizer.scale_loss(1.0))
        states = sent.reduce(model)
        with optimizers.gradients_reduced():
            _apply(model, gradients, sent.watch)
        return states
    if takes_turns(optimizer) or (accumulates(optimizer) and not sent.decides()):
        _apply(model, gradients)
        return sent.reduce(model)
    if accumulates(optimizer):
        states = sent.reduce(model)
        _apply(model, gradients, sent.watch)
        return states
    scale = optimizer.scale_loss(1.0)
    reduced, others = optimizers.reduce_together(optimizer, gradients, sent.tensors(), scale=scale)
    states = sent.receive(model, others)
    with optimizers.gradients_reduced():
        _apply(model, reduced, sent.watch)
    return states


def _apply(model: keras.Model, gradients: Sequence[Any], watch: Telling | None = None) -> None:
    variables = model.trainable_weights
    if not variables:
        warnings.warn("The model does not have any trainable weights.", stacklevel=2)
        return
    # As Keras's step does, for optimizers that have an `apply_gradients` of their own.
    update = functools.partial(model.optimizer.apply_gradients, list(zip(gradients, variables, strict=True)))
    if watch is None:
        update()
    else:
        watch.update(update)


def _forward(model: keras.Model, data: Any, share: Share, *, training: bool) -> tf.Tensor:
    """The loss of this replica's rows by the convention of `share.py`; metrics are updated on the way."""
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    with _as_on_one_replica(model, share):
        return _forward_on_rows(model, x, y, sample_weight, share, training=training)


def _forward_on_rows(
    model: keras.Model, x: Any, y: Any, sample_weight: Any, share: Share, *, training: bool
) -> tf.Tensor:
    y_pred = call_model(model, x, training=training)
    loss = compute_loss_of(model, x, y, y_pred, sample_weight, training=training)
    if meet_loss(model, loss):
        loss = as_mean(loss, share)
    weight = share.num_examples * share.logged_per_example
    loss_tracker(model).update_state(_mean_entry(loss, share), sample_weight=weight)
    update_metrics(model, x, y, y_pred, sample_weight)
    return loss


def _mean_entry(loss: tf.Tensor, share: Share) -> tf.Tensor:
    """What Keras logs of a loss: the scalar itself, or the mean of a vector (loss reduction None)."""
    if loss.shape.rank == 0:
        return loss
    own = loss * tf.cast(share.weight, loss.dtype)
    return tf.math.divide_no_nan(tf.reduce_sum(own), tf.cast(tf.size(own), own.dtype))


@contextlib.contextmanager
def _as_on_one_replica(model: keras.Model, share: Share) -> Iterator[None]:
    """Lets a step compute losses and metrics as its author meant them."""
    with global_loss_attributes(model), metrics.unchanged_by_stand_in(_counted(model), share):
        yield


def _counted(model: keras.Model) -> list[keras.Variable]:
    """What the metrics of `model`, and any other under its strategy, have counted."""
    variables = [variable for metric in metrics.metrics_of(model) for variable in metric.variables]
    return list({id(variable): variable for variable in variables}.values())


def _global_logs(
    model: keras.Model,
    logs: Any,
    given: Sequence[tuple[keras.metrics.Metric, Any]],
    sent: SentAlong = SentAlong(),  # noqa: B008
) -> Logs:
    """What a metric has told the step as it is over all replicas, anything else averaged over all examples.

    Args:
        model: Whose step it was.
        logs: What the step returned.
        given: The metrics that the step asked for results, and what came back.
        sent: What the step sends besides, as it was before.
    """
    share: Any = current_share()
    sent = sent.after(logs, share)
    asked = {id(metric): metric for metric, _ in given}
    counted = [variable for metric in (*model.metrics, *asked.values()) for variable in metric.variables]
    variables = list({id(variable): variable for variable in counted}.values())
    sent = sent.with_states(variables)
    # What only the watch sends has no collective of its own: it travels with the logs.
    is_lone = sent.watch is not None and len(sent.tensors()) == len(sent.watch.sent)
    states = [] if is_lone else sent.reduce(model)
    # On one replica it is told what it counts, at any time.
    told = [] if share.is_whole else list(given)
    with metrics.using_states(variables, states):
        results = {identity: metric.result() for identity, metric in asked.items()}
    leaves = keras.tree.flatten_with_path(dict(logs))
    whole = [_whole_result(value, told, results) for _, value in leaves]
    others = [index for index, value in enumerate(whole) if value is None]
    named = [(".".join(map(str, leaves[index][0])), leaves[index][1]) for index in others]
    values = _over_all_examples(model, named, share, sent if is_lone else SentAlong())
    for index, value in zip(others, values, strict=True):
        whole[index] = value
    return keras.tree.pack_sequence_as(dict(logs), whole)


def _whole_result(value: Any, told: Sequence[tuple[keras.metrics.Metric, Any]], results: dict[int, Any]) -> Any:
    """The result over all replicas of which `value` is this replica's; None when it is no result of a metric."""
    for metric, result in told:
        pairs = zip(keras.tree.flatten(result), keras.tree.flatten(results[id(metric)]), strict=True)
        for own, whole in pairs:
            if own is value:
                return whole
    return None


def _over_all_examples(
    model: keras.Model, named: Sequence[tuple[str, Any]], share: Share, sent: SentAlong
) -> list[Any]:
    """Values that each replica has computed of its own rows: the mean over all examples, or the sum."""
    own = []
    for name, value in named:
        value = tf.convert_to_tensor(value)
        value = value if value.dtype.is_floating else tf.cast(value, keras.config.floatx())
        is_sum = meet_term("log", None, f"log {name!r}", [value])
        weight = share.is_counted(value.dtype) if is_sum else tf.cast(share.weight, value.dtype)
        own.append(tf.math.multiply_no_nan(value, weight))
    sums = all_reduce_sum([*own, *sent.tensors()])
    sent.receive(model, sums[len(own) :])
    return sums[: len(own)]

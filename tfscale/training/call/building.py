"""How is everything made that a step needs, before it is traced?

Keras builds its own steps from shapes alone. A step of the user's own, and data or a model that Keras cannot call with
stand-ins, are rehearsed: so everything is made as on one device, where the first step makes it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.exact.foreign import is_of_keras
from tfscale.exact.metrics import computes_of_results, meet_updates, metrics_of, remembering_results
from tfscale.exact.plain_step import runs_as_it_stands
from tfscale.exact.randomness import replicate_general_generator
from tfscale.exact.terms import Terms
from tfscale.framework.models import build_from_spec, flat_layers, runs_eagerly
from tfscale.gradients.updaters import held_optimizers, innermost
from tfscale.replicas.made import made_under
from tfscale.training.call.looks import Look
from tfscale.training.check.check_rows import CheckRows
from tfscale.training.step.own_numbers import OwnNumbers
from tfscale.training.step.rehearsal import rehearse, rehearse_eagerly

_log = logging.getLogger(__name__)
# Of Keras's own optimizers, since 3.15.
_FILLING = ("ScheduleFreeAdamW",)


def build_for(model: keras.Model, strategy: tf.distribute.Strategy, name: str, spec: Any, terms: Terms) -> bool:
    """Makes whatever the model, its losses, metrics and optimizers lack for one of its steps, on all replicas.

    Args:
        model: Prepared.
        strategy: Its strategy.
        name: Of the step, such as `"train_step"`.
        spec: Structure of specs of a batch; None where no data have come yet.
        terms: What is known of the step; what the rehearsal shows of its logs is written there.

    Returns:
        Whether it could be done from shapes.
    """
    try:
        return _build_for(model, strategy, name, spec, terms)
    finally:
        replicate_general_generator(strategy)


def _build_for(model: keras.Model, strategy: tf.distribute.Strategy, name: str, spec: Any, terms: Terms) -> bool:
    predicts = name == "predict_step"
    if spec is None or (predicts and all(each.built for each in flat_layers(model))):
        return True

    def from_shapes() -> None:
        with strategy.scope():
            build_from_spec(model, spec)

    def as_first_step() -> None:
        rehearse(strategy, _step_of(model, name, terms), spec)

    ways = [from_shapes, as_first_step]
    # From shapes Keras makes metrics and optimizers as well, which a prediction does not.
    if predicts or runs_as_it_stands(model, name):
        ways = [as_first_step]
    elif _is_made_in_first_step(model):
        # What runs eagerly is rehearsed with rows, where shapes do not do.
        ways = [as_first_step] if runs_eagerly(model) else [as_first_step, from_shapes]
    for way in ways:
        try:
            with _as_first_trace(model, strategy):
                way()
            return True
        # Keras calls the model with stand-ins for data, which not every model takes; and what is wrong with the user's
        # step will show where it is run.
        except Exception as error:
            _log.debug("the %s of model %r: %s fails: %s", name, model.name, way.__name__, error)
    return False


@contextlib.contextmanager
def _as_first_trace(model: keras.Model, strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Leaves in Python what the first trace of a step leaves there, which is nothing where it is the only one.

    A function of TensorFlow that makes variables is traced once more, with what its first trace has left.
    """
    # Held: of one that is gone a new one may have the identity.
    numbers, before = OwnNumbers(model), made_under(strategy).variables
    held, known, has_made = numbers.held(), set(map(id, before)), False
    try:
        yield
        has_made = any(id(variable) not in known for variable in made_under(strategy).variables)
    finally:
        if runs_eagerly(model) or not has_made:
            numbers.put_back(held)


def _is_made_in_first_step(model: keras.Model) -> bool:
    """Whether only the step itself shows what it makes.

    Keras builds from shapes as for inference, and what it assigns while it traces the first step, it loses.
    """
    if runs_eagerly(model):
        return _has_own_unbuilt_layer(model) and not _fills_slots(model)
    return _has_own_unbuilt_layer(model) or _fills_slots(model)


def _has_own_unbuilt_layer(model: keras.Model) -> bool:
    """Whether a layer of the user's may make others as it is called, in training only perhaps."""
    layers = flat_layers(model)
    return not all(each.built for each in layers) and not all(is_of_keras(type(each)) for each in layers)


def _fills_slots(model: keras.Model) -> bool:
    """Whether an optimizer may assign something as it is built."""
    return any(
        not each.built and (not is_of_keras(type(each)) or type(each).__name__ in _FILLING)
        for each in map(innermost, held_optimizers(model))
    )


class RowsRehearsal:
    """Makes what an eager step lacks that shapes do not make, with rows of the first batch.

    Args:
        model: Prepared, run eagerly.
        strategy: Its strategy.
        name: Of the step.
        terms: As for `build_for`.
        then: To be called when it is made; returns what looks at that batch and at later ones.
    """

    def __init__(
        self,
        model: keras.Model,
        strategy: tf.distribute.Strategy,
        name: str,
        terms: Terms,
        then: Callable[[], Look | None],
    ):
        self._model, self._strategy = model, strategy
        self._step = _step_of(model, name, terms)
        self._what = f"{name} of model {model.name!r}"
        self._then = then
        self._look: Look | None = None

    def __call__(self, batch: Any) -> None:
        """Makes it, and looks at the first batch."""
        try:
            numbers = OwnNumbers(self._model)
            if numbers.iterators:
                raise ModelError(f"It takes from {', '.join(numbers.iterators)}, which gives each value once.")
            with numbers.unchanged():
                rehearse_eagerly(self._strategy, self._step, CheckRows.of(batch, self._strategy).whole)
        except Exception as error:  # As above.
            _log.debug("the %s could not be rehearsed: %s", self._what, error)
        self._look = self._then()
        if self._look is not None:
            self._look(batch)

    def again(self, batch: Any, *, is_next: bool) -> bool:
        """Looks at a later one."""
        return self._look is not None and self._look.again(batch, is_next=is_next)


def _step_of(model: keras.Model, name: str, terms: Terms) -> Callable[[Any], None]:
    def step(data: Any) -> None:
        meet_updates(metrics_of(model))
        with remembering_results() as given:
            logs = getattr(model, name)(data)
        if name != "predict_step":
            terms.tells_whole_results = computes_of_results(logs, given)

    return step

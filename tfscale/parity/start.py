"""From which weights does a run start, and what is its model like?"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfscale.errors import ParityError
from tfscale.exact.plain_step import has_own_step
from tfscale.framework.losses import count_added_losses
from tfscale.framework.models import build_from_spec, flat_layers
from tfscale.parity.outcome import ModelFacts, NamedArrays
from tfscale.parity.random_layers import switch_off_random_layers
from tfscale.training.step.rehearsal import rehearse

_CLIPPING = ("clipnorm", "global_clipnorm", "clipvalue")


class Start(keras.callbacks.Callback):
    """Sets the starting weights when `fit` has built everything and has not traced a step yet.

    Args:
        first_batch: What `fit` gets in its first step, to build a model that is not built.
        given: The weights to start from; None keeps those that `build` made.
        one_rounding_away: Whether to move each of them to a float next to it.
    """

    def __init__(self, first_batch: Any, given: Sequence[np.ndarray] | None, *, one_rounding_away: bool) -> None:
        super().__init__()
        self._first_batch = first_batch
        self._given = given
        self._one_rounding_away = one_rounding_away
        self.weights: NamedArrays = {}
        self.facts = ModelFacts()

    def on_train_begin(self, logs: Any = None) -> None:
        """Called by `fit` before its first step."""
        del logs
        model = self.model
        _build(model, self._first_batch)
        off, still_on = switch_off_random_layers(model)
        self.facts = facts_of(model, off, still_on)
        values = model.get_weights() if self._given is None else self._given
        if self._one_rounding_away:
            values = one_rounding_away(values)
        _set_weights(model, values)
        self.weights = dict(name_values(model.weights, values))


def _build(model: keras.Model, batch: Any) -> None:
    """Makes what Keras, without a strategy, makes while it traces the first step: too late to set weights."""
    if _is_built(model):
        return
    try:
        build_from_spec(model, batch)
    except Exception:  # Whatever Keras calls a model with that has no `call`, or one of its own kind.
        if not has_own_step(model, "train_step"):
            raise
    if not _is_built(model) and has_own_step(model, "train_step"):
        _trace(model, batch)


def _is_built(model: keras.Model) -> bool:
    # A model without `call` never is.
    return all(layer.built for layer in flat_layers(model) if layer is not model)


def _trace(model: keras.Model, batch: Any) -> None:
    """Traces the first step, and does not run it."""
    spec = tf.nest.map_structure(lambda rows: tf.TensorSpec((None, *rows.shape[1:]), rows.dtype), batch)
    try:
        if tf.distribute.has_strategy():
            rehearse(tf.distribute.get_strategy(), model.train_step, spec)
        else:
            tf.function(model.train_step, autograph=False).get_concrete_function(spec)
    except Exception as error:
        raise ParityError(
            "`build` must return a model whose layers are built, or can be by tracing its train_step.\n"
            f"Received: {model.name!r}, whose train_step cannot be traced: {type(error).__name__}: {error}. "
            "Call each of its layers on a batch in `build`."
        ) from error


def one_rounding_away(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Moves every float to the next one, up or down by a fixed choice; zeros stay.

    Example:
        >>> import numpy as np
        >>> [moved] = one_rounding_away([np.ones(100, np.float32)])
        >>> bool(np.all(moved != 1)), bool(np.all(np.abs(moved - 1) < 2e-7))
        (True, True)
    """
    generator = np.random.default_rng(0)
    moved = []
    for array in arrays:
        upwards = generator.random(array.shape) < 0.5
        if array.dtype.kind != "f":
            moved.append(array)
            continue
        neighbours = np.nextafter(array, np.where(upwards, np.inf, -np.inf).astype(array.dtype))
        moved.append(np.where(array == 0, array, neighbours))
    return moved


def name_values(variables: Sequence[keras.Variable], values: Sequence[np.ndarray]) -> list[tuple[str, np.ndarray]]:
    """Pairs each value with a name of its own: paths may occur twice."""
    names: dict[str, int] = {}
    pairs = []
    for variable, value in zip(variables, values, strict=True):
        count = names[variable.path] = names.get(variable.path, 0) + 1
        pairs.append((variable.path if count == 1 else f"{variable.path} ({count})", value))
    return pairs


def _set_weights(model: keras.Model, values: Sequence[np.ndarray]) -> None:
    shapes = [tuple(variable.shape) for variable in model.weights]
    if shapes != [value.shape for value in values]:
        raise ParityError(
            "`build` must make the same model in every run.\n"
            f"Received: weights of shapes {shapes} in this run, "
            f"{[value.shape for value in values]} in the reference. "
            "Leave out what depends on chance, time or the number of devices."
        )
    model.set_weights(values)


def facts_of(model: keras.Model, random_off: tuple[str, ...] = (), random_on: tuple[str, ...] = ()) -> ModelFacts:
    """What is known of a model that is built.

    Args:
        model: Compiled.
        random_off: Random layers that were switched off.
        random_on: Those that could not be.
    """
    layers = flat_layers(model)
    optimizer = getattr(model, "optimizer", None)
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return ModelFacts(
        own_steps=tuple(name for name in ("train_step", "test_step") if has_own_step(model, name)),
        batch_norm=tuple(layer.name for layer in layers if isinstance(layer, keras.layers.BatchNormalization)),
        random_off=random_off,
        random_on=random_on,
        num_added_losses=count_added_losses(model),
        clips=any(getattr(inner, name, None) is not None for name in _CLIPPING),
        averages_micro_steps=bool(
            getattr(inner, "use_ema", False) and getattr(inner, "gradient_accumulation_steps", None)
        ),
        compute_dtypes=tuple(sorted({layer.compute_dtype for layer in layers})),
    )

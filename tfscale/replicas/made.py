"""Which optimizers, metrics and generators of random numbers were made under the scope of a strategy?

Whatever holds them: they are noted when they make their first variable.
"""

from __future__ import annotations

import weakref
from typing import Any

import keras
import tensorflow as tf

from tfscale.replicas.callers import callers
from tfscale.replicas.counted import begin_together, is_counted
from tfscale.replicas.owners import Fact, ReplicaGroup


class Made:
    """What was made under the scope of one strategy, as long as it is in use, in the order of its making."""

    def __init__(self) -> None:
        self._optimizers: list[weakref.ref[keras.optimizers.Optimizer]] = []
        self._metrics: list[weakref.ref[keras.metrics.Metric]] = []
        self._seed_generators: list[weakref.ref[keras.random.SeedGenerator]] = []
        self._variables: list[weakref.ref[Any]] = []
        self._begun: list[tuple[weakref.ref[Any], tf.Tensor]] = []
        self.count = 0
        """How many variables were made: it tells a model of a second fold from that of the first."""

    def note(self, variable: Any = None) -> None:
        """To be called when a variable is made: notes for whom, and the variable itself if it is there."""
        self.count += 1
        if variable is not None:
            self._variables.append(weakref.ref(variable))
        for optimizer in callers(keras.optimizers.Optimizer)[:1]:
            _add(self._optimizers, optimizer)
        for metric in callers(keras.metrics.Metric)[:1]:
            _add(self._metrics, metric)
            if is_counted(variable) and tf.executing_eagerly():
                self._begun = [each for each in self._begun if each[0]() is not None]
                copy = tf.distribute.get_strategy().experimental_local_results(variable)[0]
                begun = tf.identity(copy.read_value())
                self._begun.append((weakref.ref(variable), begun))
                begin_together(variable, begun)
        for generator in callers(keras.random.SeedGenerator)[:1]:
            _add(self._seed_generators, generator)

    @property
    def variables(self) -> list[Any]:
        """TensorFlow's variables of all replicas."""
        self._variables = [each for each in self._variables if each() is not None]
        return [variable for variable in (each() for each in self._variables) if variable is not None]

    def begun_with(self, variable: Any) -> tf.Tensor | None:
        """What a metric's variable was made with, before its copies shared that; None where that was not seen."""
        return next((value for reference, value in self._begun if reference() is variable), None)

    @property
    def optimizers(self) -> list[keras.optimizers.Optimizer]:
        """All but those inside of another, such as a `LossScaleOptimizer`."""
        found = [optimizer for optimizer in (each() for each in self._optimizers) if optimizer is not None]
        inner: set[int] = set()
        for optimizer in found:
            held = [getattr(optimizer, "inner_optimizer", None), *getattr(optimizer, "optimizers", ())]
            inner.update(map(id, held))
        return [optimizer for optimizer in found if id(optimizer) not in inner]

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """All of them."""
        return [metric for metric in (each() for each in self._metrics) if metric is not None]

    @property
    def seed_generators(self) -> list[keras.random.SeedGenerator]:
        """All of them."""
        return [generator for generator in (each() for each in self._seed_generators) if generator is not None]

    def __repr__(self) -> str:
        kinds = ("optimizers", "metrics", "seed_generators", "variables")
        return f"Made({', '.join(f'{len(getattr(self, kind))} {kind}' for kind in kinds)})"


def _add(references: list[weakref.ref[Any]], one: Any) -> None:
    if not any(each() is one for each in reversed(references)):
        # What is gone is forgotten.
        references[:] = [*(each for each in references if each() is not None), weakref.ref(one)]


MADE = Fact[Made](ReplicaGroup, "made")


def made_under(strategy: tf.distribute.Strategy) -> Made:
    """What was made under the scope of `strategy` since it was adopted."""
    return MADE.ensure(strategy, Made())

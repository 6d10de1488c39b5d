"""What are the steps of a prepared model, and what of it must be made exact before they are traced?"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfscale.exact import batch_wide_layers, metrics
from tfscale.exact.added_losses import meet_added_losses
from tfscale.exact.batch_norm import batch_norm_layers, moving_statistics, scale_batch_norm
from tfscale.exact.losses import make_losses_global
from tfscale.exact.plain_step import has_own_step, keras_step, runs_as_it_stands
from tfscale.exact.randomness import separate_random_streams
from tfscale.exact.terms import Terms
from tfscale.framework.models import runs_eagerly
from tfscale.gradients import scope_checks
from tfscale.gradients.micro_steps import Division
from tfscale.training.call.building import RowsRehearsal, build_for
from tfscale.training.call.half_made import noting_half_made, refuse_half_made
from tfscale.training.call.looks import Look, OneAfterTheOther
from tfscale.training.call.met_optimizers import meet_optimizers
from tfscale.training.call.predictions import forms_of_predictions
from tfscale.training.call.step_runner import ReplicaSteps
from tfscale.training.check.eager_check import EagerStepCheck
from tfscale.training.check.first_states import FirstStates
from tfscale.training.check.first_step import Steps
from tfscale.training.check.step_check import StepCheck
from tfscale.training.check.vouching import is_checked, refuse_unseen_parts
from tfscale.training.step import step
from tfscale.training.step.logical_replicas import LogicalRun
from tfscale.training.step.micro_batch import of_few_rows
from tfscale.training.step.options import Options

_FIRSTS = {"train_step": "first step", "test_step": "first step of an evaluation", "predict_step": "first prediction"}


class ModelSteps:
    """The steps that a replica takes for a model, and as which one replica would take them.

    Args:
        model: Prepared.
        strategy: Its strategy.
        options: As `prepare` was given them.
        logical: Its logical replicas.
        divide: Into which parts a replica takes its rows in a step of this name, once the model is built; or None.

    Attributes:
        terms: By name of a step, what its losses were found to be.
        first_states: What the model's states were before its first step.
    """

    def __init__(
        self,
        model: keras.Model,
        strategy: tf.distribute.Strategy,
        options: Options,
        logical: LogicalRun,
        divide: Callable[[str], Division | None],
    ):
        self._model = model
        self._strategy = strategy
        self._options = options
        self._logical = logical
        self._divide = divide
        self.terms = {name: Terms() for name in _FIRSTS}
        self.first_states = FirstStates(model, strategy)

    def of(self, name: str, default: functools.partial[Any], own: Callable[..., Any], *more: Any) -> ReplicaSteps:
        """What a replica does with its rows in the step `name`: `default`, or `own` for a class that defines it."""
        terms = self.terms[name]
        if runs_as_it_stands(self._model, name, is_divided=default.keywords["division"] is not None):

            def run_own(rows: Any) -> Any:
                return own(self._model, rows, *more, terms=terms)

            alone = self._logical.drawing_nothing(run_own, f"a `{name}` of one's own")
            return ReplicaSteps(alone, alone, make_logs=dict)

        def run(rows: Any, sends_states: bool) -> Any:
            return default(self._model, rows, *more, terms=terms, sends_states=sends_states)

        return ReplicaSteps(
            functools.partial(run, sends_states=True),
            functools.partial(run, sends_states=False),
            make_logs=functools.partial(metrics.metric_results, self._model),
            afterwards=functools.partial(step.send_states, self._model),
        )

    def adapt(self, name: str, data_spec: Any) -> Look | None:
        """Makes every part of the compiled model exact for the step `name`; returns what looks at its batches.

        Args:
            name: Of the step.
            data_spec: Of a global batch.
        """
        model, terms = self._model, self.terms[name]
        refuse_half_made(model)
        scope_checks.refuse_stateful_layers(model, self._logical.total or self._strategy.num_replicas_in_sync)
        self.first_states.begin()
        with noting_half_made():
            is_built = build_for(model, self._strategy, name, data_spec, terms)
        if is_built or not runs_eagerly(model):
            return self._hook(name)
        return RowsRehearsal(model, self._strategy, name, terms, lambda: self._hook(name))

    def look_anew(self, name: str) -> Look | None:
        """As `adapt`, for data of another kind."""
        self.terms[name] = Terms()
        return self._look(name)

    def _hook(self, name: str) -> Look | None:
        """As `adapt`, of what has been built. Cheap next to tracing the step."""
        model = self._model
        scope_checks.check_built_inside(model)
        self.first_states.note()
        # Once more, for layers that were made when the model was built.
        scale_batch_norm(model, self._options.batch_ratio)
        batch_wide_layers.make_layers_global(model, self._options.batch_norm)
        separate_random_streams(self._strategy, model)
        meet_optimizers(model, self._strategy, self._options.sending)
        if model.compiled:
            make_losses_global(model)
        meet_added_losses(model)
        metrics.meet_updates(metrics.metrics_of(model))
        return self._look(name)

    def _look(self, name: str) -> Look | None:
        """What looks at the first step of a kind; None where there is nothing to be found."""
        model = self._model
        mode, count = self._options.check, int(self._strategy.num_replicas_in_sync)
        if not is_checked(model, mode, predicts=name == "predict_step"):
            return None
        checks = []
        if count > 1:
            checks.append(self._check(name, self._both_forms(name), _FIRSTS[name]))
        is_whole = name == "predict_step" or has_own_step(model, name)
        division = None if is_whole else self._divide(name)
        if division is not None and name == "train_step" and moving_statistics(batch_norm_layers(model)):
            is_logical = self._logical.total is not None
            refuse_unseen_parts(model, mode, is_logical=is_logical, num_replicas=count)
        elif division is not None:
            forms = self._both_forms(name, of_few_rows(division, self._options.global_batch, count))
            checks.append(self._check(name, forms, f"{_FIRSTS[name]} in parts"))
        return OneAfterTheOther(checks) if len(checks) > 1 else next(iter(checks), None)

    def _check(self, name: str, forms: Steps, what: str) -> StepCheck:
        kind = EagerStepCheck if forms.eager else StepCheck
        return kind(self._model, self._strategy, self.terms[name], forms, self._options.check, what)

    def _both_forms(self, name: str, division: Division | None = None) -> Steps:
        """The step `name` as it is run, or with these parts, and as on one replica."""
        if name == "predict_step":
            return forms_of_predictions(self._model, self.terms[name])
        if name == "train_step":
            default = functools.partial(step.train_step, division=division)
            steps = self.of(name, default, step.own_train_step, self._options.batch_norm)
        else:
            steps = self.of(name, functools.partial(step.test_step, division=division), step.own_test_step)
        alone = functools.partial(keras_step, self._model, name)
        is_own, begin = runs_as_it_stands(self._model, name), self.first_states.put_back
        is_eager, in_parts = runs_eagerly(self._model), division is not None
        return Steps(steps.alone, alone, steps.make_logs, begin, eager=is_eager, is_own=is_own, in_parts=in_parts)

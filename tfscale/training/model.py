"""What makes a Keras model exact on N replicas?

`prepare` gives the model object, and only it, methods of `ModelMethods` in the places where Keras leaves room: the
three step functions, the build from shapes, and thin checks around `fit`, `evaluate` and `predict`. Its class stays
what it was, and so does everything that is saved.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import keras
import tensorflow as tf

from tfscale.data.balance import make_probe
from tfscale.data.dataset import find_global_dataset
from tfscale.data.epoch_start import start_with_epoch
from tfscale.data.labels_read import reading_alike
from tfscale.exact.batch_norm import scale_batch_norm
from tfscale.exact.plain_step import has_own_logs, keras_step
from tfscale.framework.datasets import distributed_dataset
from tfscale.framework.fit import keep_last_logs
from tfscale.framework.models import flat_layers, replace_auto_jit_compile, replace_symbolic_build
from tfscale.gradients import scope_checks
from tfscale.gradients.compression.choice import check_compression_devices
from tfscale.gradients.micro_steps import Division
from tfscale.gradients.network import Network, choose_network
from tfscale.gradients.sending import choose_sending
from tfscale.moved import refusing_moved
from tfscale.recovery.callback import RecoverableFit, find_recoverable_fit
from tfscale.recovery.chief_only import warn_of_writers
from tfscale.recovery.one_call import callbacks_of_one_fit, with_callback
from tfscale.replicas.failures import failing_together
from tfscale.replicas.one_at_a_time import one_at_a_time
from tfscale.replicas.xla import would_compile
from tfscale.training.call.building import build_for
from tfscale.training.call.cache_files import refuse_shared_cache
from tfscale.training.call.call_data import suit_batch, take_data
from tfscale.training.call.call_errors import freeing_when_python_ends, naming_errors
from tfscale.training.call.equal_weights import compare_weights
from tfscale.training.call.frozen import forget_functions, note_trained
from tfscale.training.call.half_made import noting_half_made, refuse_half_made
from tfscale.training.call.kinds import by_kind
from tfscale.training.call.looks import Look
from tfscale.training.call.on_batches import guard_calls_on_batches
from tfscale.training.call.placing import place_call
from tfscale.training.call.predictions import predict_step
from tfscale.training.call.row_order import order_alike
from tfscale.training.call.settling import settle_first
from tfscale.training.call.step_runner import StepRunner
from tfscale.training.call.steps_per_call import ChosenCalls
from tfscale.training.callbacks.epoch_ends import compare_at_epoch_ends
from tfscale.training.callbacks.labels_read import compare_labels, comparing_first
from tfscale.training.check.data_end import COUNTED_MORE, DataEnd, what_needs_no_batch
from tfscale.training.check.vouching import check_mode
from tfscale.training.model_steps import ModelSteps
from tfscale.training.step import step
from tfscale.training.step.batch_checks import forget_expected_batch
from tfscale.training.step.call_arguments import CallArguments
from tfscale.training.step.distribution import LAST_SPEC, dataset_spec
from tfscale.training.step.logical_replicas import LogicalRun, check_beside
from tfscale.training.step.micro_batch import MicroBatch
from tfscale.training.step.options import Options
from tfscale.training.step.unprepared import prepare_others
from tfscale.training.strategy import adopt_strategy, check_network_of


@refusing_moved({"network": Network})
def prepare(
    model: keras.Model,
    *,
    strategy: tf.distribute.Strategy,
    global_batch: int | None = None,
    batch_norm: str = "synchronized",
    batch_ratio: int | Fraction = 1,
    micro_batch: int | str | None = None,
    logical_replicas: int | None = None,
    deterministic: bool = False,
    steps_per_execution: str | int | None = None,
    network: Network | None = None,
    check: str = "auto",
) -> keras.Model:
    """Makes `model` compute on N replicas what it computes on one.

    The same object comes back; its class, layers, weights and files stay what they are. Before or after `compile`,
    as often as one likes.

    Args:
        model: Any Keras model, built or not, created under `strategy.scope()`.
        strategy: From `make_strategy`, or a `MirroredStrategy` or `MultiWorkerMirroredStrategy` of one's own.
        global_batch: Rows of a full training batch; `fit` refuses others. None takes what comes.
        batch_norm: `"synchronized"` (as one replica) or `"local"`.
        batch_ratio: Global batch / reference batch. Unless it is 1, the moving averages of BatchNormalization get the
            momentum m^r, with which they remember as many examples; files keep the m of the recipe.
        micro_batch: Most rows of a replica in one forward and backward pass; see `DataParallel`. Needs `global_batch`.
        logical_replicas: Has a run depend on them, and not on the devices; see `DataParallel`.
        deterministic: Has it do so to the bit, and makes the process so; see `DataParallel`. Needs `logical_replicas`.
        steps_per_execution: `"auto"`, `"always"` or None for what `compile` says; see `DataParallel`.
        network: How gradients travel. What is in it beside `compression` and `double_buffering` is the strategy's.
        check: Whether the first step is compared with that of one replica, on its own rows, before anything is updated:
            `"auto"` where code takes part that is not Keras's own, `"always"`, `"off"`, or `"warn"` for a warning in
            place of an error. It makes the first step take two to three times as long.

    Returns:
        `model`.

    Raises:
        ModelError: When `model` is no Keras model, was created outside of the strategy's scope, or `check` is none of
            the four.
        ParityError: In `fit` and `evaluate`, when the first step is not that of one replica. Nothing was updated.
        DeviceError: When the strategy is of another kind, or `deterministic` comes too late in the process.
        BatchError: When `micro_batch`, `logical_replicas`, `deterministic` or `steps_per_execution` is none of these.
        CommunicationError: When `network` is none, the strategy was made with another one, or the compression is not
            for these devices; in `fit`, when the optimizer cannot go with it.

    Example:
        >>> import keras, tfscale
        >>> strategy = tfscale.make_strategy(devices=1)
        >>> with strategy.scope():
        ...     model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> tfscale.prepare(model, strategy=strategy) is model
        True
    """
    network = choose_network(network)
    adopt_strategy(strategy)
    scope_checks.check_model(model, strategy)
    check_network_of(strategy, network)
    sending = choose_sending(network)
    check_compression_devices(sending.compression, strategy)
    check_mode(check)
    check_beside(logical_replicas, micro_batch, sending)
    rows = global_batch, micro_batch, logical_replicas, deterministic
    options = Options(*rows, batch_norm, batch_ratio, steps_per_execution, sending, check)
    ModelMethods(model, strategy, options).install()
    # Others that were made under the same scope, with the same choices but for the batch.
    others = options._replace(global_batch=None, micro_batch=None)
    prepare_others(strategy, lambda other: ModelMethods(other, strategy, others).install())
    return model


class ModelMethods:
    """The exact counterparts of the methods that Keras calls on a model.

    Args:
        model: The model to act for.
        strategy: Its strategy.
        options: As `prepare` was given them.
    """

    def __init__(self, model: keras.Model, strategy: tf.distribute.Strategy, options: Options):
        self._model = model
        self._strategy = strategy
        self._options = options
        self._global_batch = options.global_batch
        self._micro_batch = MicroBatch(options.micro_batch, options.global_batch, strategy, options.batch_norm)
        self._calls = ChosenCalls(strategy, options.steps_per_execution)
        self._sending = options.sending
        self._logical = LogicalRun(model, strategy, options)
        self._runner = StepRunner(model, strategy, self._calls, as_traced=options.deterministic)
        self._steps = ModelSteps(model, strategy, options, self._logical, self._divide)
        self._data_spec: Any = None
        self._ends: dict[str, DataEnd] = {}
        self._fit: RecoverableFit | None = None

    def install(self) -> None:
        """Puts these methods on the model object, unless it has them: its functions stay traced until `compile`."""
        model = self._model
        scale_batch_norm(model, self._options.batch_ratio)
        if self._is_like(getattr(vars(model).get("make_train_function"), "__self__", None)):
            return
        forget_functions(model)
        for name in ("make_train_function", "make_test_function", "make_predict_function"):
            setattr(model, name, getattr(self, name))
        for name in ("fit", "evaluate", "predict"):
            setattr(model, name, self._checked(name))
        guard_calls_on_batches(model, self._strategy, self._sending)
        model.compile = self._compiled_inside()
        replace_symbolic_build(model, self.build)
        replace_auto_jit_compile(model, self._would_compile)
        keep_last_logs(model, self._logs_before_restart, self._reads_logs)

    def _is_like(self, other: Any) -> bool:
        is_one = isinstance(other, ModelMethods) and other._model is self._model
        return is_one and (other._strategy, other._options) == (self._strategy, self._options)

    def _logging_function(self, name: str, look: Look | None, *step_of_kind: Any) -> Callable[[Any], Any]:
        def of_kind(look: Look | None) -> Callable[[Any], Any]:
            steps = self._steps.of(name, *step_of_kind)
            return self._runner.logging_function(steps, look, times_input=name == "train_step")

        function = by_kind(look, of_kind, lambda: self._steps.look_anew(name))
        return self._steps.first_states.in_first_call_of(function, unless=lambda: bool(self._fit and self._fit.goes_on))

    def make_train_function(self, force: bool = False) -> Callable[[Any], Any]:
        """As `keras.Model.make_train_function`."""
        # Keras has its training data by now; what comes next is evaluation data.
        forget_expected_batch(self._strategy)
        if self._model.train_function is None or force:
            look = self._steps.adapt("train_step", self._data_spec)
            default = functools.partial(step.train_step, division=self._divide("train_step"))
            steps = default, step.own_train_step, self._options.batch_norm
            function = self._logging_function("train_step", look, *steps)
            self._model.train_function = comparing_first(self._ending(function, "train_step"), self._strategy)
            note_trained(self._model)
        self._ends["train_step"].begin(self._data_spec)
        return self._model.train_function

    def make_test_function(self, force: bool = False) -> Callable[[Any], Any]:
        """As `keras.Model.make_test_function`."""
        if self._model.test_function is None or force:
            look = self._steps.adapt("test_step", self._data_spec)
            default = functools.partial(step.test_step, division=self._divide("test_step"))
            function = self._logging_function("test_step", look, default, step.own_test_step)
            self._model.test_function = comparing_first(self._ending(function, "test_step"), self._strategy)
        self._ends["test_step"].begin(self._data_spec)
        return self._model.test_function

    def _divide(self, name: str) -> Division | None:
        """Into which parts a replica takes its rows in a step of the model as it is built and compiled."""
        spec = self._data_spec if name == "train_step" else None
        return self._logical.divide(self._model) or self._micro_batch.divide(self._model, spec)

    def _ending(self, function: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
        plain = functools.partial(keras_step, self._model, name)
        self._ends[name] = DataEnd(self._model, functools.partial(what_needs_no_batch, self._strategy, plain))
        return self._ends[name].as_keras(function)

    def make_predict_function(self, force: bool = False) -> Callable[[Any], Any]:
        """As `keras.Model.make_predict_function`."""
        if self._model.predict_function is None or force:
            # Keras builds nothing before it predicts: the first batch does, in the step.
            look = self._steps.adapt("predict_step", LAST_SPEC.of(self._model))
            division = self._logical.divide(self._model) if self._options.deterministic else None

            def of_kind(look: Look | None) -> Callable[[Any], Any]:
                terms = self._steps.terms["predict_step"]
                predict = functools.partial(predict_step, self._model, terms=terms, division=division)
                return self._runner.predict_function(self._logical.drawing_nothing(predict, "`predict`"), look)

            function = by_kind(look, of_kind, lambda: self._steps.look_anew("predict_step"))
            self._model.predict_function = comparing_first(function, self._strategy)
        return self._model.predict_function

    def build(self, iterator: Any = None, data_batch: Any = None) -> None:
        """Builds whatever the model still lacks, from the shapes of its data."""
        if iterator is not None:
            if self._fit is not None:
                self._fit.use(iterator)
            self._calls.begin_pass(self._model, iterator)
        self._data_spec = data_batch if iterator is None else dataset_spec(distributed_dataset(iterator))

    def _reads_logs(self) -> bool:
        """Whether the logs of a pass are read from the metrics when it has ended."""
        return bool(COUNTED_MORE.forget(self._model)) or has_own_logs(self._model)

    def _logs_before_restart(self) -> dict[str, Any]:
        return {} if self._fit is None else self._fit.logs()

    def _would_compile(self) -> bool:
        kinds = [device.device_type for device in tf.config.list_physical_devices()]
        return not self._options.deterministic and would_compile(flat_layers(self._model), kinds)

    def _checked(self, name: str) -> Callable[..., Any]:
        """`fit`, `evaluate` or `predict` of the model's class, with the batch size checked or filled in."""
        method = getattr(type(self._model), name).__get__(self._model)

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            given = CallArguments(method, name, args, kwargs)
            refuse_half_made(self._model)
            with (
                one_at_a_time(self._strategy, name),
                noting_half_made(),
                failing_together(self._strategy, name) as watch,
            ):
                if watch is not None:
                    place_call(watch, given)
                return self._fit_once(method, given) if name == "fit" else self._call(name, method, given)

        return call

    def _compiled_inside(self) -> Callable[..., Any]:
        """`compile` of the model's class, under the strategy's scope wherever it is called from."""
        method = type(self._model).compile.__get__(self._model)

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._strategy.scope():
                result = method(*args, **kwargs)
            scope_checks.check_optimizers(self._model)
            return result

        return call

    def _fit_once(self, method: Callable[..., Any], given: CallArguments) -> Any:
        """One call of `fit`, and nothing left of it when it ends."""
        # Before the model is built, which TensorFlow would refuse in words of its own.
        scope_checks.check_optimizers(self._model)
        warn_of_writers(given.get("callbacks"), self._strategy)
        with callbacks_of_one_fit(lambda: given.get("callbacks")):
            try:
                self._fit = find_recoverable_fit(self._model, self._strategy, given, self._global_batch)
                callback = start_with_epoch(given, self._model) if self._fit is None else None
                if callback is not None and given.can_take("callbacks"):
                    given["callbacks"] = with_callback(given.get("callbacks"), callback, first=False)
                settle_first(given, self._model, self._strategy, self._sending)
                refuses = self._options.check not in ("warn", "off")
                compare_at_epoch_ends(given, self._model, self._strategy, refuses=refuses)
                return self._call("fit", method, given)
            finally:
                forget_expected_batch(self._strategy)
                if self._fit is not None:
                    self._fit.close()
                    self._fit = None

    def _call(self, name: str, method: Callable[..., Any], given: CallArguments) -> Any:
        is_within = bool(given.get("_use_cached_eval_dataset"))
        if not is_within:
            compare_weights(name, self._model, self._strategy)
        with reading_alike(self._strategy, name, given.get("x"), goes_on=is_within):
            return self._call_reading(name, method, given)

    def _call_reading(self, name: str, method: Callable[..., Any], given: CallArguments) -> Any:
        self._suit_data(name, given)
        take_data(name, given, self._strategy)
        if name == "fit":
            refuse_shared_cache(given, self._strategy)
            compare_labels(given, self._strategy)
        if name != "predict":
            self._calls.begin_call(self._model, name, given)
        suit_batch(name, given, self._global_batch, self._strategy)
        order_alike(name, given, self._strategy, self._model)
        with freeing_when_python_ends(), naming_errors(self._model, self._strategy, name, self._global_batch):
            return method(*given.args, **given.kwargs)

    def _suit_data(self, name: str, given: CallArguments) -> None:
        """Measures the workers where `fit` was asked to, and refuses what `predict` could not return in order."""
        if (dataset := find_global_dataset(given.get("x"))) is None:
            return
        if name == "predict":
            dataset.check_order()
        if name == "fit" and dataset.is_unmeasured:
            self.build(data_batch=dataset.element_spec)
            build_for(self._model, self._strategy, "train_step", self._data_spec, self._steps.terms["train_step"])
            probe = functools.partial(make_probe, self._model, self._strategy)
            dataset.measure_loads(probe)

"""The one object that a script holds: it wires strategy, batch and model together and decides nothing itself."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import DeviceError
from tfscale.scaling import BatchPlan, Recipe, ScaledKnob, describe_growth
from tfscale.scaling.batch_plan import check_one_batch
from tfscale.scaling.recipe import recipe_beside
from tfscale.training.batch_norm import batch_norm_knobs, choose_batch_norm
from tfscale.training.callbacks.chief_only import write_on_chief_only
from tfscale.training.callbacks.drift_watch import DriftWatch
from tfscale.training.callbacks.noise_scale import noise_scale_beside
from tfscale.training.callbacks.non_finite_watch import NonFiniteWatch
from tfscale.training.callbacks.recovery import Recovery
from tfscale.training.callbacks.scaling_report import ScalingReport
from tfscale.training.callbacks.stall_watch import StallWatch
from tfscale.training.callbacks.step_counted import rederive_callbacks
from tfscale.training.data.dataset import GlobalDataset
from tfscale.training.data.distribution import prepare_others
from tfscale.training.inputs import local_replicas, worker_rank
from tfscale.training.link import describe_link
from tfscale.training.micro_batch import check_micro_batch, describe_micro_batch, largest_share
from tfscale.training.model import prepare
from tfscale.training.recovery.location import find_directory
from tfscale.training.rederived import rederive_optimizer, rederive_schedule
from tfscale.training.scope_checks import scope_of
from tfscale.training.sending import choose_sending
from tfscale.training.steps_per_call import check_steps_per_execution
from tfscale.training.strategy import adopt_strategy, make_strategy


class DataParallel:
    """Trains one Keras model on all replicas of a job, with the result of one.

    Give exactly one of the two batch sizes; the other follows:
    `global_batch = per_replica_batch * num_replicas`.

    Args:
        per_replica_batch: Examples of one replica in one step: the global batch grows with the replicas, and
            BatchNormalization keeps seeing as many examples as on one replica.
        global_batch: Examples of all replicas in one step: the batch is kept, and split. It need not be a multiple of
            the number of replicas.
        reference_batch: The batch for which learning rate, schedule, betas ... were tuned. By default
            `per_replica_batch` (a recipe for one replica), or `global_batch` when that was given.
        examples_per_epoch: Examples in an epoch; needed for a warm-up only, and to show the steps of an epoch.
        rule: By what factor the learning rate grows: `"auto"` (by optimizer), `"linear"`, `"sqrt"`, `"none"`,
            `"adascale"` (measured at every step: `AdaScaleSGD`), a `ScalingRule`, or a function of the batch ratio.
        warmup_epochs: Epochs over which the rate rises from the reference rate; `"auto"` is 5 for the linear rule, and
            none for the others.
        recipe: A `Recipe`: the four arguments above, where they are not given by themselves, and what else is known of
            the run that was tuned: its critical batch, how often clipping bites, what becomes of Adam's beta_1.
        batch_norm: `"auto"`, `"local"` or `"synchronized"`. `"auto"` is local where one replica has at least
            `reference_batch` examples, else synchronised: statistics of as many examples as in the reference run.
        compression: How gradients travel. `"none"`: as they are (exact). `"bf16"` and `"fp16"`: in half of the bytes
            (rounding). `PowerSGD(rank)`: as thin matrices (approximate). `ErrorFeedback(inner)`: what a compression
            leaves out goes into the next step. Or a `Compression` of one's own. Losses, counts and metrics stay exact.
        double_buffering: Whether gradients travel during the next step, which hides the link behind its computation
            (approximate: each update is made with the gradients of the step before; the same on any number of replicas
            from two on, and off on one). The first step of an epoch makes no update, its end makes up for it;
            `train_on_batch` stays exact. Published cost: ResNet-50 on CIFAR-10 at 89.3 % in place of 93.2 %, VGG-16 at
            90.6 % in place of 92.5 % (Chen et al. 2022, SAPipe). Not with gradient accumulation or AdaScale.
        communication: As `make_strategy`.
        bytes_per_pack: As `make_strategy`.
        devices: As `make_strategy`.
        strategy: A strategy of one's own, in place of `devices`, `communication` and `bytes_per_pack`.
        micro_batch: Most examples of one forward and backward pass on one replica, where its share of a batch does not
            fit into memory: it is run in micro-steps, with one reduction and one update for all (exact).
            BatchNormalization normalises over a micro-step (of all replicas, if synchronised) and its moving averages
            get the mean of the micro-steps; dropout draws anew for each, so that masks are other ones than without
            micro-steps. `"auto"` tries before the first step what fits, and halves what does not.
        steps_per_execution: `"auto"` has `fit` and `evaluate` take several steps per call of the compiled function, as
            many as it needs for the host's share of the time to fall under 2 % (exact). Callbacks for batches are
            called once per call, with its last step, up to a second late. A number given to `compile` goes before;
            None leaves it at that.
        seed: Seeds Python, NumPy and Keras before the model is built, for a reproducible run; None leaves them alone.

    Raises:
        BatchError: When no or both batch sizes are given, one is not a positive integer, the global batch is smaller
            than the number of replicas, or `micro_batch` is larger than a replica's part of it.
        ScalingError: When the rule, the warm-up or the recipe is none, or one thing is given twice.
        DeviceError: For unknown devices, or a strategy that is not mirrored.
        CommunicationError: For an unknown compression, or a bad `bytes_per_pack` or `double_buffering`.
        ClusterError: When the environment describes a cluster by halves, or the workers do not meet or agree; see
            `make_strategy`.

    Example:
        >>> import keras, tfscale
        >>> dp = tfscale.DataParallel(global_batch=8, devices=1)
        >>> with dp.scope():
        ...     model = dp.prepare(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))
        ...     model.compile("sgd", "mse")
        >>> dp.num_replicas, dp.global_batch, dp.rank, dp.is_chief
        (1, 8, 0, True)
        >>> print(dp)
        1 replica, global batch 8, reference batch 8: batch_ratio 1.
        The batch is the one that the recipe was tuned for: nothing was changed.
        >>> grown = tfscale.DataParallel(per_replica_batch=64, reference_batch=16, warmup_epochs=0, devices=1)
        >>> sgd = grown.optimizer(keras.optimizers.SGD(0.1, momentum=0.9))
        >>> print(grown)
        1 replica, global batch 64, reference batch 16: batch_ratio 4.
        <BLANKLINE>
        name               unit      old  new  rule
        global batch       examples  16   64   x r
        SGD.learning_rate  per step  0.1  0.4  x r
        SGD.momentum       per step  0.9  0.9  unchanged
        <BLANKLINE>
        Why:
          SGD.learning_rate: rule 'linear' (Goyal et al. 2017, arXiv:1706.02677), f = 4
    """

    def __init__(
        self,
        per_replica_batch: int | None = None,
        *,
        global_batch: int | None = None,
        reference_batch: int | None = None,
        examples_per_epoch: int | None = None,
        rule: Any = "auto",
        warmup_epochs: Any = "auto",
        recipe: Recipe | None = None,
        batch_norm: str = "auto",
        compression: Any = "none",
        double_buffering: bool = False,
        communication: str = "auto",
        bytes_per_pack: int | None = None,
        devices: str | int | Sequence[str] = "auto",
        strategy: tf.distribute.Strategy | None = None,
        micro_batch: int | str | None = None,
        steps_per_execution: str | None = None,
        seed: int | None = None,
    ):
        check_steps_per_execution(steps_per_execution)
        check_one_batch(per_replica_batch, global_batch)
        choose_batch_norm(batch_norm, per_replica_batch=1, reference_batch=1)
        beside = {"rule": rule, "warmup_epochs": warmup_epochs, "examples_per_epoch": examples_per_epoch}
        known = recipe_beside(recipe, reference_batch=reference_batch, **beside)
        self._sending = choose_sending(compression, double_buffering)
        batches = {
            "per_replica_batch": per_replica_batch,
            "global_batch": global_batch,
            "reference_batch": known.reference_batch,
        }
        given = {**batches, "batch_norm": batch_norm, **self._sending.names(), "seed": seed}
        self._strategy = _strategy_of(
            strategy, agree_on=given, devices=devices, communication=communication, bytes_per_pack=bytes_per_pack
        )
        plan = _plan_of(batches, micro_batch, self.num_replicas)
        self._micro_batch = micro_batch
        self._seed = seed
        self._steps_per_execution = steps_per_execution
        self._growth = known.grow(plan)
        self._batch_norm = choose_batch_norm(
            batch_norm,
            per_replica_batch=min(float(plan.per_replica_batch), plan.micro_batch),
            reference_batch=plan.reference_batch,
        )
        # By name, so that a notebook's cell that runs twice is listed once.
        self._knobs: dict[str, ScaledKnob] = {}
        self._models: weakref.WeakSet[keras.Model] = weakref.WeakSet()
        as_used: dict[str, Any] = {"batch_norm": self._batch_norm, "batch_ratio": self.batch_ratio}
        prepare_others(self._strategy, functools.partial(prepare, strategy=self._strategy, **as_used))
        if seed is not None:
            keras.utils.set_random_seed(seed)

    @property
    def strategy(self) -> tf.distribute.Strategy:
        """TensorFlow's strategy, for whatever else a script needs it for."""
        return self._strategy

    @property
    def num_replicas(self) -> int:
        """Replicas of the whole job."""
        return int(self._strategy.num_replicas_in_sync)

    @property
    def global_batch(self) -> int:
        """Examples of all replicas in one step: what a `tf.data.Dataset` is to be batched by."""
        return self.plan.global_batch

    @property
    def plan(self) -> BatchPlan:
        """How the examples of a step are divided, and how many the reference run had."""
        return self._growth.plan

    @property
    def batch_ratio(self) -> Fraction:
        """Global batch / reference batch, exactly. At 1 nothing is re-derived."""
        return self.plan.batch_ratio

    @property
    def rank(self) -> int:
        """Index of this worker, from 0."""
        return worker_rank(self._strategy)

    @property
    def is_chief(self) -> bool:
        """Whether this worker writes the job's files."""
        return self.rank == 0

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Where the model, the optimizer and the metrics are created, and `compile` is called."""
        return scope_of(self._strategy)

    def prepare(self, model: keras.Model, check: str = "auto") -> keras.Model:
        """Makes `model` exact on these replicas; see `tfscale.prepare`. The same object comes back.

        Args:
            model: Any Keras model that was made under the scope, compiled or not.
            check: `"auto"`, `"always"`, `"warn"` or `"off"`: whether its first step is compared with one replica's.
        """
        prepared = prepare(
            model,
            strategy=self._strategy,
            global_batch=self.global_batch,
            batch_norm=self._batch_norm,
            batch_ratio=self.batch_ratio,
            micro_batch=self._micro_batch,
            steps_per_execution=self._steps_per_execution,
            compression=self._sending.compression or "none",
            double_buffering=self._sending.double_buffering,
            check=check,
        )
        self._models.add(prepared)
        return prepared

    def optimizer(self, optimizer: Any) -> keras.optimizers.Optimizer:
        """Re-derives every hyper-parameter of an optimizer for the batch ratio; see `scale_hyperparameters`.

        Args:
            optimizer: The recipe's optimizer, or its name.

        Returns:
            A new one of the same class, created under the strategy's scope; at batch ratio 1 the same object.

        Raises:
            ScalingError: When it was re-derived before, has trained already, a hyper-parameter cannot be re-derived,
                or the warm-up needs `examples_per_epoch`.
        """
        made, knobs = rederive_optimizer(optimizer, self._growth, self._strategy)
        self._list(knobs, prefix=f"{type(made).__name__}.")
        return made

    def schedule(self, schedule: Any) -> Any:
        """Re-derives a learning-rate schedule, or a constant rate, by itself: for a training loop of one's own.

        Args:
            schedule: A Keras schedule, or a rate.

        Returns:
            A `ReplicaSchedule`; at batch ratio 1 the same object.

        Raises:
            ScalingError: When `rule` is "auto", which goes by the optimizer; otherwise as `ReplicaSchedule`.
        """
        made, knobs = rederive_schedule(schedule, self._growth)
        self._list(knobs)
        return made

    def dataset(
        self,
        source: Any,
        *,
        map_fn: Callable[..., Any] | None = None,
        shuffle: bool | int = False,
        drop_remainder: bool = False,
        cache: bool | str = False,
        worker_load: Sequence[float] | str | None = None,
        sharding: str = "exact",
    ) -> GlobalDataset:
        """Returns a dataset of global batches of which each worker reads and maps its own rows only.

        Row j of global batch b is the same example on any number of replicas and workers. See `GlobalDataset` for what
        the arguments mean; `fit`, `evaluate` and `predict` of a prepared model take the result.

        Args:
            source: Arrays, an unbatched `tf.data.Dataset`, a TFDS builder, a `PyDataset`, or `RecordFiles`.
            map_fn: From one example, and a seed if it has a second argument, to what the model takes.
            shuffle: Whether to mix the examples anew for each epoch; for a stream, also the size of the buffer.
            drop_remainder: Whether to leave out a last batch that is smaller.
            cache: Whether to keep a stream in memory once it was read; `"mapped"` for what `map_fn` made of it.
            worker_load: Shares of the work, per worker or per replica; `"auto"` measures them in the first `fit`.
            sharding: `"files"` has every worker read whole files of its own, in an order that depends on how many
                there are; for `RecordFiles` and TFDS builders.

        Raises:
            DataError: When the source is none of these, is empty, batched or of unknown length, or an argument is not
                as above.
            BatchError: When the loads leave a replica without a row of a full batch.

        Example:
            >>> import numpy as np, tfscale
            >>> dp = tfscale.DataParallel(global_batch=4, devices=1)
            >>> data = dp.dataset(np.arange(6), map_fn=lambda example: 10 * example)
            >>> [batch.numpy().tolist() for batch in data]
            [[0, 10, 20, 30], [40, 50]]
        """
        return GlobalDataset(
            source,
            strategy=self._strategy,
            global_batch=self.global_batch,
            map_fn=map_fn,
            shuffle=shuffle,
            drop_remainder=drop_remainder,
            cache=cache,
            worker_load=worker_load,
            sharding=sharding,
            seed=self._seed,
        )

    def callbacks(
        self, directory: str | os.PathLike[str] | Iterable[keras.callbacks.Callback] | None = None
    ) -> list[Any]:
        """Returns callbacks for `fit`: the sensible set, or the user's own, re-derived for the batch ratio.

        Args:
            directory: Where the sensible set writes its files, those of one `fit`; None to write none. Or a list of
                callbacks: what Keras's own count in steps (`save_freq`, `update_freq`, `profile_batch`) is re-derived
                and listed.

        Returns:
            `ScalingReport` on the chief, `NonFiniteWatch("report")`, `DriftWatch` for several replicas, `StallWatch`
            for several workers, with a directory `Recovery`, and `NoiseScale` unless a compression leaves something
            out; or those given, Keras's writers of files in a `ChiefOnly`.

        Raises:
            ScalingError: When a given one counts batches in a way that cannot be re-derived.
            RecoveryError: For `BackupAndRestore` on several workers; `Recovery` does what it is for.
        """
        if directory is None or isinstance(directory, str | os.PathLike):
            report = ScalingReport(self.plan, examples_per_epoch=self._growth.examples_per_epoch, directory=directory)
            replicas = local_replicas(self._strategy)
            recovery = [] if directory is None else [Recovery(find_directory(directory) / "recovery")]
            watches: list[Any] = [NonFiniteWatch("report"), *([DriftWatch()] if replicas.total > 1 else [])]
            watches += [StallWatch()] if replicas.here < replicas.total else []
            watches += noise_scale_beside(directory, self._sending.compression, replicas.total)
            return [*([report] if self.is_chief else []), *recovery, *watches]
        callbacks, knobs = rederive_callbacks(directory, self.batch_ratio)
        self._list(knobs)
        return write_on_chief_only(callbacks, self._strategy)

    def steps_per_epoch(self, num_examples: int) -> int:
        """Returns the steps of one epoch, a smaller last one included."""
        return self.plan.steps_per_epoch(num_examples)

    def __str__(self) -> str:
        models = [batch_norm_knobs(model, self.batch_ratio) for model in self._models]
        growth = describe_growth(self._growth, [*self._knobs.values(), *itertools.chain(*models)])
        share = largest_share(self.global_batch, self.num_replicas)
        micro = [describe_micro_batch(model, self._micro_batch, share) for model in self._models]
        optimizers = [model.optimizer for model in self._models if model.compiled and model.optimizer is not None]
        others = [*micro, describe_link(self._strategy), *self._sending.describe(optimizers, self.num_replicas)]
        return "\n".join([growth, *filter(None, others)])

    def _list(self, knobs: Iterable[ScaledKnob], prefix: str = "") -> None:
        for knob in knobs:
            named = dataclasses.replace(knob, name=prefix + knob.name)
            self._knobs[named.name] = named


def _plan_of(batches: dict[str, Any], micro_batch: Any, num_replicas: int) -> BatchPlan:
    """How a step is divided; a micro-batch of "auto" is found later."""
    plan = BatchPlan(**batches, num_replicas=num_replicas)
    check_micro_batch(micro_batch, plan.micro_batch)
    if not isinstance(micro_batch, int) or micro_batch == plan.micro_batch:
        return plan
    batches = {"global_batch": plan.global_batch, "reference_batch": plan.reference_batch}
    return BatchPlan(**batches, micro_batch=micro_batch, num_replicas=num_replicas)


def _strategy_of(
    strategy: tf.distribute.Strategy | None, *, agree_on: dict[str, Any], **arguments: Any
) -> tf.distribute.Strategy:
    """The user's own strategy, or one made with these arguments."""
    if strategy is None:
        return make_strategy(agree_on=agree_on, **arguments)
    defaults = {"devices": "auto", "communication": "auto", "bytes_per_pack": None}
    given = [f"{name}={value!r}" for name, value in arguments.items() if value != defaults[name]]
    if given:
        raise DeviceError(
            "`devices` and `strategy` exclude each other, and so do `communication` and `bytes_per_pack`: a strategy "
            "has its own.\n"
            f"Received: {', '.join(given)} and a {type(strategy).__name__}. Leave one of them out."
        )
    return adopt_strategy(strategy)

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

from tfscale.data.dataset import GlobalDataset
from tfscale.exact.batch_norm import batch_norm_knobs, check_batch_norm, choose_batch_norm
from tfscale.gradients.network import Network, choose_network
from tfscale.gradients.scope_checks import scope_of
from tfscale.gradients.sending import choose_sending
from tfscale.moved import refusing_moved
from tfscale.recovery.callback import Recovery
from tfscale.recovery.chief_only import write_on_chief_only
from tfscale.recovery.location import find_directory
from tfscale.rederive.rederived import rederive_optimizer, rederive_schedule
from tfscale.rederive.step_counted import rederive_callbacks
from tfscale.replicas.deterministic import begin_deterministic, describe_deterministic
from tfscale.replicas.link import describe_link
from tfscale.replicas.replica_batch import local_replicas, worker_rank
from tfscale.scaling import BatchPlan, Recipe, ScaledKnob, describe_recipe
from tfscale.scaling.batch_plan import check_one_batch
from tfscale.scaling.recipe import choose_recipe
from tfscale.training.call.steps_per_call import check_steps_per_execution, describe_steps_per_call
from tfscale.training.callbacks.drift_watch import DriftWatch
from tfscale.training.callbacks.noise_scale import noise_scale_beside
from tfscale.training.callbacks.non_finite_watch import NonFiniteWatch
from tfscale.training.callbacks.scaling_report import ScalingReport
from tfscale.training.callbacks.stall_watch import StallWatch
from tfscale.training.model import prepare
from tfscale.training.step.logical_replicas import describe_logical_replicas, note_logical_run, plan_logically
from tfscale.training.step.micro_batch import check_micro_batch, describe_micro_batch, largest_share
from tfscale.training.step.unprepared import prepare_others
from tfscale.training.strategy import adopt_strategy, check_network_of, make_strategy


class DataParallel:
    """Trains one Keras model on all replicas of a job, with the result of one.

    Making one is work: it meets the other workers of the job, for which it waits up to `Network.timeout_s` (120 s); it
    starts TensorFlow on them, measures the link between the replicas where there is one (a second), and seeds Python,
    NumPy and Keras if a seed is given. Make it at the top of a script, once.

    Give exactly one of the two batch sizes; the other follows:
    `global_batch = per_replica_batch * num_replicas`.

    Args:
        per_replica_batch: Examples of one replica in one step: the global batch grows with the replicas, and
            BatchNormalization keeps seeing as many examples as on one replica.
        global_batch: Examples of all replicas in one step: the batch is kept, and split. It need not be a multiple of
            the number of replicas.
        recipe: What is known of the run that learning rate, schedule, betas ... were tuned for, and how they follow a
            larger batch: its batch, the rule of the rate, the warm-up; see `Recipe`. By default it is one for
            `per_replica_batch` examples (on one replica), or for `global_batch` when that was given.
        network: How replicas reach each other, and how gradients travel between them; see `Network`. By default
            everything is chosen, and exact.
        devices: As `make_strategy`; or a strategy of one's own, a `tf.distribute.MirroredStrategy` or
            `MultiWorkerMirroredStrategy`.
        batch_norm: `"auto"`, `"local"` or `"synchronized"`. `"auto"` is local where one replica has at least
            `Recipe.reference_batch` examples, else synchronised: statistics of as many examples as in the reference
            run.
        micro_batch: Most examples of one forward and backward pass on one replica, where its share of a batch does not
            fit into memory: it is run in micro-steps, with one reduction and one update for all (exact).
            BatchNormalization normalises over a micro-step (of all replicas, if synchronised) and its moving averages
            get the mean of the micro-steps; dropout draws anew for each, so that masks are other ones than without
            micro-steps. `"auto"` tries before the first step what fits, and halves what does not.
        logical_replicas: L: the run is that of L replicas, on any number N <= L of devices, which need not divide it:
            each runs its own one after the other, as one step. Rows, random numbers and local BatchNormalization are
            those of the logical replicas, so that runs on any N agree to rounding. L must divide the global batch; with
            `per_replica_batch` that is L times as large. Not with `micro_batch`, compression, AdaScale, or a
            `train_step` of one's own.
        deterministic: Whether runs of as many logical replicas with the same seed are equal to the bit, on any number
            of devices of one kind, with the same versions. It makes the process so; see the guide on logical replicas.
        steps_per_execution: `"auto"` has `fit` and `evaluate` take several steps per call of the compiled function, as
            many as it needs for the host's share of the time to fall under 2 % (exact), where nobody can tell: no
            callback reads single batches, the step is Keras's own and not run eagerly, and the steps to come save
            clearly more than it costs to trace a call of several. `"always"` begins with them, whatever callbacks there
            are: those for batches are called once per call, with its last step, up to a second late. A number
            given to `compile` goes before; None or 1 leaves it at that.
        seed: Seeds Python, NumPy and Keras before the model is built, for a reproducible run; None leaves them alone.

    Raises:
        BatchError: When no or both batch sizes are given, one is not a positive integer, the global batch is smaller
            than the number of replicas, `micro_batch` is larger than a replica's part of it, or `logical_replicas` do
            not divide it or are fewer than the devices.
        ScalingError: When `recipe` is no `Recipe`.
        DeviceError: For unknown devices, or a strategy that is not mirrored.
        CommunicationError: When `network` is no `Network`, or says of a strategy what is not true of it.
        TypeError: For an argument that is a field of `Recipe` or `Network`: the message has the line to write.
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
        >>> grown = tfscale.DataParallel(
        ...     per_replica_batch=64, recipe=tfscale.Recipe(reference_batch=16, warmup_epochs=0), devices=1
        ... )
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

    @refusing_moved({"recipe": Recipe, "network": Network}, {"strategy": "devices"})
    def __init__(
        self,
        per_replica_batch: int | None = None,
        *,
        global_batch: int | None = None,
        recipe: Recipe | None = None,
        network: Network | None = None,
        devices: str | int | Sequence[str] | tf.distribute.Strategy = "auto",
        batch_norm: str = "auto",
        micro_batch: int | str | None = None,
        logical_replicas: int | None = None,
        deterministic: bool = False,
        steps_per_execution: str | int | None = "auto",
        seed: int | None = None,
    ):
        check_steps_per_execution(steps_per_execution)
        check_one_batch(per_replica_batch, global_batch)
        check_batch_norm(batch_norm)
        self._recipe = choose_recipe(recipe)
        self._network = choose_network(network)
        self._sending = choose_sending(self._network)
        batches = {"per_replica_batch": per_replica_batch, "global_batch": global_batch}
        batches["reference_batch"] = self._recipe.reference_batch
        given = {**batches, "batch_norm": batch_norm, **self._sending.names(), "seed": seed}
        given |= {"logical_replicas": logical_replicas, "steps_per_execution": steps_per_execution}
        given["deterministic"] = deterministic
        begin_deterministic(deterministic, logical_replicas=logical_replicas, seed=seed)
        self._strategy = _strategy_of(devices, self._network, agree_on=given)
        if logical_replicas is None:
            plan = _plan_of(batches, micro_batch, int(self.num_replicas))
        else:
            plan = plan_logically(batches, logical_replicas, int(self.num_replicas), micro_batch, self._sending)
        note_logical_run(self._strategy, logical_replicas)
        self._plan, self._micro_batch, self._seed = plan, micro_batch, seed
        self._logical_replicas, self._deterministic = logical_replicas, deterministic
        self._steps_per_execution = steps_per_execution
        rows = plan.micro_batch if logical_replicas else min(float(plan.per_replica_batch), plan.micro_batch)
        self._batch_norm = choose_batch_norm(batch_norm, per_replica_batch=rows, reference_batch=plan.reference_batch)
        # By name, so that a notebook's cell that runs twice is listed once.
        self._knobs: dict[str, ScaledKnob] = {}
        # In the order in which they were prepared.
        self._models: weakref.WeakKeyDictionary[keras.Model, None] = weakref.WeakKeyDictionary()
        as_used: dict[str, Any] = {"logical_replicas": logical_replicas, "deterministic": deterministic}
        as_used |= {"batch_norm": self._batch_norm, "batch_ratio": self.batch_ratio}
        prepare_others(self._strategy, functools.partial(prepare, strategy=self._strategy, **as_used))
        if seed is not None:
            keras.utils.set_random_seed(seed)

    @property
    def strategy(self) -> tf.distribute.Strategy:
        """TensorFlow's strategy, for whatever else a script needs it for."""
        return self._strategy

    @property
    def num_replicas(self) -> int:
        """Replicas of the whole job; in a step, what a loss is divided by, as `strategy.num_replicas_in_sync` is."""
        count: int = self._strategy.num_replicas_in_sync
        return count

    @property
    def global_batch(self) -> int:
        """Examples of all replicas in one step: what a `tf.data.Dataset` is to be batched by."""
        return self.plan.global_batch

    @property
    def plan(self) -> BatchPlan:
        """How the examples of a step are divided, and how many the reference run had."""
        return self._plan

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
            logical_replicas=self._logical_replicas,
            deterministic=self._deterministic,
            steps_per_execution=self._steps_per_execution,
            network=self._network,
            check=check,
        )
        self._models[prepared] = None
        return prepared

    def optimizer(self, optimizer: Any) -> keras.optimizers.Optimizer:
        """Re-derives every hyper-parameter of an optimizer for the batch ratio; see `scale_hyperparameters`.

        Args:
            optimizer: The recipe's optimizer, or its name.

        Returns:
            A new one of the same class, created under the strategy's scope; at batch ratio 1 the same object.

        Raises:
            ScalingError: When it was re-derived before, has trained already, a hyper-parameter cannot be re-derived,
                or the warm-up needs `Recipe.examples_per_epoch`.
        """
        made, knobs = rederive_optimizer(optimizer, self._recipe, self._plan, self._strategy)
        self._list(knobs, prefix=f"{type(made).__name__}.")
        return made

    def schedule(self, schedule: Any) -> Any:
        """Re-derives a learning-rate schedule, or a constant rate, by itself: for a training loop of one's own.

        Args:
            schedule: A Keras schedule, or a rate.

        Returns:
            A `ReplicaSchedule`; at batch ratio 1 the same object.

        Raises:
            ScalingError: When the recipe's rule is "auto", which goes by the optimizer; otherwise as `ReplicaSchedule`.
        """
        made, knobs = rederive_schedule(schedule, self._recipe, self._plan)
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
            logical_replicas=self._logical_replicas,
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
            examples = self._recipe.examples_per_epoch
            report = ScalingReport(self.plan, examples_per_epoch=examples, directory=directory, describe=self.__str__)
            replicas = local_replicas(self._strategy)
            recovery = [] if directory is None else [Recovery(find_directory(directory) / "recovery")]
            watches: list[Any] = [NonFiniteWatch("report"), *([DriftWatch()] if replicas.total > 1 else [])]
            watches += [StallWatch()] if replicas.on_several_workers else []
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
        knobs = [*self._knobs.values(), *itertools.chain(*models)]
        share = largest_share(self.global_batch, int(self.num_replicas))
        optimizers = [model.optimizer for model in self._models if model.compiled and model.optimizer is not None]
        others = [
            *(describe_micro_batch(model, self._micro_batch, share) for model in self._models),
            describe_logical_replicas(self._logical_replicas, int(self.num_replicas), self.global_batch),
            describe_deterministic(self._strategy) if self._deterministic else "",
            *map(describe_steps_per_call, self._models),
            describe_link(self._strategy),
            *self._sending.describe(optimizers, int(self.num_replicas)),
        ]
        return "\n".join([describe_recipe(self._recipe, self._plan, knobs), *filter(None, others)])

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


def _strategy_of(devices: Any, network: Network, *, agree_on: dict[str, Any]) -> tf.distribute.Strategy:
    """The user's own strategy, or one for these devices."""
    if not isinstance(devices, tf.distribute.Strategy):
        return make_strategy(devices, network=network, agree_on=agree_on)
    check_network_of(devices, network)
    return adopt_strategy(devices)

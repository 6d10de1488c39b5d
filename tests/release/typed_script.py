"""Every public name as a typed script uses it. Read by `mypy --strict` beside the installed package; never run.

An annotation says what a name must give; where it is `Any`, that came from Keras or TensorFlow, which are untyped.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import tfscale


class CautiousRule(tfscale.ScalingRule):
    def __call__(self, ratio: float) -> float:
        return min(ratio, 4.0)


class Whole(tfscale.Compression):
    exactness = "exact"

    def initial_state(self, gradient: Any, index: int) -> tuple[Any, ...]:
        return ()

    def reduce(self, gradients: Sequence[Any], states: Sequence[Any], sum_over_replicas: Any) -> tfscale.Reduction:
        return tfscale.Reduction(sum_over_replicas(gradients), own=list(gradients), states=list(states))


def numbers() -> list[float]:
    plan = tfscale.BatchPlan(per_replica_batch=32, num_replicas=8, reference_batch=32)
    ratio: Fraction = plan.batch_ratio
    rules: list[tfscale.ScalingRule] = [
        tfscale.LinearRule(),
        tfscale.SqrtRule(),
        tfscale.NoRule(),
        tfscale.AdaScaleRule(),
        CautiousRule(),
    ]
    tfscale.scale_hyperparameters({"learning_rate": 0.1}, ratio, like="SGD")
    law: tfscale.study.LawFit = tfscale.study.fit_law([16, 32, 64], [900.0, 500.0, 300.0])
    rows: list[tfscale.study.TrialResult] = tfscale.study.read_results("runs/study")
    trials: list[tfscale.study.Trial] = [row.trial for row in rows]
    study: tfscale.study.Study = tfscale.study.fit(rows)
    return [law.b_crit, study.b_crit, float(len(trials)), *(rule(float(ratio)) for rule in rules)]


def strategies() -> list[Any]:
    tfscale.simulate_replicas(2)
    cluster: tfscale.ClusterSpec = tfscale.resolve_cluster({})
    workers: int = cluster.num_workers
    networks = [
        tfscale.Network(compression=compression, timeout_s=30.0)
        for compression in (Whole(), tfscale.ErrorFeedback("bf16"), tfscale.PowerSGD(rank=2))
    ]
    return [workers, *(tfscale.make_strategy(devices=2, cluster=cluster, network=network) for network in networks)]


def train(build: Any, example: Any) -> str:
    recipe = tfscale.Recipe(reference_batch=32, warmup_epochs=5)
    dp = tfscale.DataParallel(global_batch=256, recipe=recipe)
    schedule = tfscale.ReplicaSchedule(tfscale.StepDecay(0.1, multiplier=0.5, interval=100), dp.batch_ratio)
    with dp.scope():
        model = dp.prepare(build())
        model.compile(dp.optimizer(tfscale.AdaScaleSGD(schedule, reference_batch=32)))
        tfscale.prepare(build(), strategy=dp.strategy, global_batch=dp.global_batch)
    model.fit(dp.dataset(tfscale.RecordFiles("train-*", read=example)), callbacks=dp.callbacks(callbacks(dp.plan)))
    return f"{tfscale.__version__}: {dp.num_replicas} replicas"


def callbacks(plan: tfscale.BatchPlan) -> list[Any]:
    return [
        tfscale.callbacks.ChiefOnly(tfscale.callbacks.ScalingReport(plan)),
        tfscale.callbacks.DriftWatch(every_steps=10),
        tfscale.callbacks.NoiseScale(per_layer=True),
        tfscale.callbacks.NonFiniteWatch("skip"),
        tfscale.callbacks.Recovery("runs/a", every_steps=100),
        tfscale.callbacks.ReplicaScaling(8),
        tfscale.callbacks.StallWatch(60.0),
    ]


def own_loop(strategy: Any, optimizer: Any, variables: list[Any], gradients: Any, batch: Any) -> Any:
    def step(own: tfscale.loops.ReplicaBatch) -> Any:
        rows = tfscale.loops.all_gather(tfscale.gather_rows(own.data))
        tfscale.loops.apply_reduced(optimizer, tfscale.loops.all_reduce_sum(gradients), variables)
        loss = tfscale.sum_over_examples(rows) + tfscale.sum_gradients(gradients)
        return tfscale.loops.global_mean(loss, own.num_examples)

    return tfscale.loops.run_on_replicas(strategy, step, batch)


def from_flags() -> tfscale.DataParallel:
    tfscale.flags.define(global_batch=256)
    return tfscale.flags.data_parallel()


def on_ray(loop: Any) -> Any:
    return tfscale.ray.Trainer(loop, backend_config=tfscale.ray.Config(), callbacks=[tfscale.ray.Report()]).fit()


def proof(objective: Any) -> bool:
    with tfscale.sweep(objective, {"rate": [0.1, 0.2]}, trials=2) as running:
        print(running)
    bitwise = tfscale.verify_bitwise("train.py:build", "train.py:data", num_replicas=(2, 3)).equal
    return bitwise and tfscale.verify("train.py:build", "train.py:data", num_replicas=(2, 3)).equal


ERRORS: tuple[type[tfscale.TfscaleError], ...] = (
    tfscale.BatchError,
    tfscale.CallbackError,
    tfscale.ClusterError,
    tfscale.CommunicationError,
    tfscale.DataError,
    tfscale.DeviceError,
    tfscale.DriftError,
    tfscale.LaunchError,
    tfscale.MeasureError,
    tfscale.ModelError,
    tfscale.NonFiniteError,
    tfscale.ParityError,
    tfscale.RecoveryError,
    tfscale.ReportError,
    tfscale.ScalingError,
    tfscale.ScriptError,
    tfscale.StudyError,
    tfscale.VersionError,
)

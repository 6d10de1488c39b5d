"""`DataParallel` re-derives for the batch, and says what it did."""

import dataclasses
import inspect
import re

import keras
import numpy as np
import pytest

import tfscale
from tests.processes import run_case
from tests.training.contract_cases_optimizers import BROKEN
from tests.training.models import ScheduleWithoutConfig
from tfscale import (
    BatchError,
    CommunicationError,
    DataParallel,
    ModelError,
    Network,
    NoRule,
    Recipe,
    ReplicaSchedule,
    ScalingError,
    SqrtRule,
)

CASES = "tests.cases_data_parallel"


def grown(ratio=4, **recipe):
    recipe = Recipe(**{"reference_batch": 8, "warmup_epochs": 0, **recipe})
    return DataParallel(per_replica_batch=8 * ratio, recipe=recipe, devices=1)


def test_reference_batch_by_default():
    assert DataParallel(global_batch=24, devices=1).batch_ratio == 1
    assert DataParallel(per_replica_batch=24, devices=1).batch_ratio == 1
    assert run_case(f"{CASES}:batches", args=(3,)) == {
        "per_replica": (24, 72, 24, 3, "local"),
        "global": (8, 24, 24, 1, "synchronized"),
        "reference": (8, 24, 12, 2, "synchronized"),
        "local": (8, 24, 4, 6, "local"),
    }


def test_plan_and_steps():
    dp = grown(4)
    assert (dp.plan.global_batch, dp.plan.reference_batch, dp.plan.num_replicas) == (32, 8, 1)
    assert [dp.steps_per_epoch(examples) for examples in (1, 32, 33, 100)] == [1, 1, 2, 4]


def test_ratio_of_one_changes_nothing_and_says_so():
    dp = DataParallel(global_batch=8, devices=1)
    with dp.scope():
        optimizer = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.1, 100), use_ema=True)
        norm = keras.layers.BatchNormalization()
        model = dp.prepare(keras.Sequential([keras.Input((2,)), norm]))
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 100)
    assert dp.optimizer(optimizer) is optimizer
    assert dp.optimizer(dp.optimizer(optimizer)) is optimizer
    assert dp.schedule(schedule) is schedule
    assert dp.schedule(0.1) == 0.1
    assert norm.momentum == 0.99
    assert model is not None
    assert "nothing was changed" in str(dp)


def test_optimizer_of_the_same_class():
    dp = grown(4)
    adam = dp.optimizer(keras.optimizers.AdamW(0.01, beta_1=0.8, weight_decay=0.1, name="mine", use_ema=True))
    config = adam.get_config()
    assert type(adam) is keras.optimizers.AdamW
    assert config["name"] == "mine"
    assert {name: config[name] for name in ("learning_rate", "beta_1", "weight_decay", "ema_momentum")} == (
        pytest.approx({"learning_rate": 0.02, "beta_1": 0.8, "weight_decay": 0.2, "ema_momentum": 0.99**4})
    )


def test_recipe():
    recipe = Recipe(reference_batch=8, warmup_epochs=0, adam_beta_1="memory", critical_batch=40)
    dp = DataParallel(per_replica_batch=32, recipe=recipe, devices=1)
    assert dp.batch_ratio == 4
    adam = dp.optimizer(keras.optimizers.Adam(0.01, beta_1=0.8))
    assert adam.get_config()["beta_1"] == pytest.approx(0.8**4)
    assert "\nWarning: A global batch of 32 is 0.8 of the critical batch of 40" in str(dp)
    assert re.search(r"\nAdam.beta_1 +per step +0\.8 +0\.4096 +m\^r\n", str(dp))


def test_print_names_what_is_kept():
    dp = grown(4)
    dp.optimizer(keras.optimizers.Adam())
    dp.optimizer(keras.optimizers.Muon())
    assert re.search(r"\nAdam.beta_1 +per step +0\.9 +0\.9 +kept\n", str(dp))
    assert re.search(r"\nMuon.adam_beta_1 +per step +0\.9 +0\.9 +kept\n", str(dp))
    assert "\n  Adam.beta_1: as SGD's momentum: beta_1^r (Malladi 2022; adam_beta_1='memory') holds" in str(dp)
    assert "Warning" not in str(dp)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"recipe": {"critical_batch": 8}}, ScalingError, "`recipe` must be a `tfscale.Recipe`"),
        ({"network": {"compression": "bf16"}}, CommunicationError, "`network` must be a `tfscale.Network`"),
        ({"network": Recipe()}, CommunicationError, "`network` must be a `tfscale.Network`"),
        ({"batch_norm": "global"}, ModelError, "`batch_norm` must be one of"),
    ],
)
def test_bad_groups(arguments, error, said):
    with pytest.raises(error, match=rf"{said}(.|\n)*Received: {next(iter(arguments))}="):
        DataParallel(8, devices=1, **arguments)


MOVED = {
    "reference_batch": (16, "recipe=tfscale.Recipe(reference_batch=16)"),
    "rule": ("linear", "recipe=tfscale.Recipe(rule='linear')"),
    "warmup_epochs": (2.5, "recipe=tfscale.Recipe(warmup_epochs=2.5)"),
    "examples_per_epoch": (1000, "recipe=tfscale.Recipe(examples_per_epoch=1000)"),
    "adam_beta_1": ("memory", "recipe=tfscale.Recipe(adam_beta_1='memory')"),
    "critical_batch": (600, "recipe=tfscale.Recipe(critical_batch=600)"),
    "clipped_share": (0.5, "recipe=tfscale.Recipe(clipped_share=0.5)"),
    "communication": ("ring", "network=tfscale.Network(communication='ring')"),
    "bytes_per_pack": (0, "network=tfscale.Network(bytes_per_pack=0)"),
    "compression": ("bf16", "network=tfscale.Network(compression='bf16')"),
    "double_buffering": (True, "network=tfscale.Network(double_buffering=True)"),
    "timeout_s": (600, "network=tfscale.Network(timeout_s=600)"),
    "strategy": (None, "devices=None"),
}


def test_every_field_of_a_group_is_known_to_have_moved():
    fields = {field.name for group in (Recipe, Network) for field in dataclasses.fields(group)}
    assert MOVED.keys() == fields | {"strategy"}


@pytest.mark.parametrize("name", MOVED)
def test_an_old_argument_is_refused_with_the_new_line(name):
    value, written = MOVED[name]
    with pytest.raises(TypeError) as caught:
        DataParallel(64, devices=1, **{name: value})
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"`{name}` is ")
    devices = "" if name == "strategy" else "devices=1, "
    line = f"tfscale.DataParallel(64, {devices}{written})"
    assert second == f"Received: {name}={value!r}. Write: {line}"
    # What it says is right.
    if name != "strategy":
        assert eval(line, {"tfscale": tfscale}).global_batch == 64


def test_old_arguments_beside_new_ones():
    given = {"recipe": Recipe(8, critical_batch=600), "rule": "sqrt", "compression": "bf16", "seed": 1}
    with pytest.raises(TypeError) as caught:
        DataParallel(global_batch=64, strategy=object(), **given)
    assert str(caught.value) == (
        "`strategy` is given as `devices`. `rule` is a field of `tfscale.Recipe`. `compression` is a field of "
        "`tfscale.Network`.\n"
        "Received: strategy=<object>, rule='sqrt', compression='bf16'. Write: tfscale.DataParallel(global_batch=64, "
        "devices=<object>, seed=1, recipe=tfscale.Recipe(reference_batch=8, critical_batch=600, rule='sqrt'), "
        "network=tfscale.Network(compression='bf16'))"
    )


@pytest.mark.parametrize("name", ["compression", "double_buffering", "timeout_s"])
def test_prepare_refuses_old_arguments_too(name):
    value, written = MOVED[name]
    model = keras.Sequential()
    with pytest.raises(
        TypeError, match=rf"is a field of `tfscale.Network`(.|\n)*tfscale\.prepare\(.*{re.escape(written)}\)"
    ):
        tfscale.prepare(model, strategy=None, **{name: value})


def test_an_argument_that_never_was():
    with pytest.raises(TypeError, match="unexpected keyword argument 'batch_size'"):
        DataParallel(batch_size=64)


def test_signature():
    names = (
        "per_replica_batch global_batch recipe network devices batch_norm micro_batch logical_replicas "
        "deterministic steps_per_execution seed"
    )
    assert list(inspect.signature(DataParallel).parameters) == names.split()


OPTIMIZERS = [
    name for name in vars(keras.optimizers) if name[0].isupper() and name not in {"Optimizer", "OptimizerMap", *BROKEN}
]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_is_made_anew(name):
    dp = grown(4)
    make = getattr(keras.optimizers, name)
    with dp.scope():
        if name == "LossScaleOptimizer":
            optimizer = make(keras.optimizers.SGD(0.1), dynamic_growth_steps=400)
        elif name == "MultiOptimizer":
            optimizer = make(
                keras.optimizers.OptimizerMap(keras.optimizers.SGD(0.1), {".*bias": keras.optimizers.Adam()})
            )
        else:
            optimizer = make(keras.optimizers.schedules.PolynomialDecay(0.1, 100))
        optimizer = dp.optimizer(optimizer)
    assert type(optimizer) is make
    if name == "LossScaleOptimizer":
        assert optimizer.dynamic_growth_steps == 100
        assert optimizer.inner_optimizer.learning_rate.numpy() == pytest.approx(0.4)
    if name not in ("Lamb", "LossScaleOptimizer", "Muon", "SGD"):
        return
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((2,)), keras.layers.Dense(4), keras.layers.Dense(1)]))
        model.compile(optimizer, "mse")
    model.fit(np.ones((64, 2)), np.ones((64, 1)), verbose=0)
    assert int(optimizer.iterations.numpy()) == 2
    assert all(np.all(np.isfinite(weight)) for weight in model.get_weights())


class OwnSchedule(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, rate):
        self.rate = rate

    def __call__(self, step):
        return self.rate + step

    def get_config(self):
        return {"rate": self.rate}


class OwnSGD(keras.optimizers.SGD):
    """Not registered with Keras; its name says nothing to the tables."""


class OwnHabit(keras.optimizers.SGD):
    def __init__(self, needed):
        super().__init__(0.1)


def test_classes_of_ones_own():
    dp = grown(4, rule="linear")
    made = dp.optimizer(keras.optimizers.SGD(OwnSchedule(0.5), momentum=0.9))
    schedule = ReplicaSchedule(OwnSchedule(0.5), 4)
    assert made.get_config()["learning_rate"]["config"]["schedule"]["class_name"] == "OwnSchedule"
    assert float(made.learning_rate) == float(schedule(0)) == 2.0
    with pytest.warns(UserWarning, match="momentum, nesterov|nesterov, momentum"):
        own = dp.optimizer(OwnSGD(0.1, momentum=0.9))
    assert type(own) is OwnSGD
    assert own.learning_rate.numpy() == pytest.approx(0.4)
    assert re.search(r"^OwnSGD.momentum +0.9 +0.9 +not understood$", str(dp), re.MULTILINE)
    wrapped = dp.optimizer(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(OwnSchedule(0.5))))
    assert float(wrapped.learning_rate) == 2.0


def test_name_of_an_optimizer():
    assert grown(4).optimizer("sgd").learning_rate.numpy() == pytest.approx(0.04)


def test_warmup_goes_by_the_rule_of_the_optimizer():
    # 80 examples are 10 reference steps, 5 epochs of them 50.
    dp = grown(4, warmup_epochs="auto", examples_per_epoch=80)
    schedule = dp.optimizer(keras.optimizers.SGD(0.1)).get_config()["learning_rate"]
    assert schedule["class_name"] == "ReplicaSchedule"
    assert schedule["config"]["warmup_steps"] == 50
    assert dp.optimizer(keras.optimizers.Adam(0.1)).get_config()["learning_rate"] == pytest.approx(0.2)
    assert re.search(r"^epoch +steps +10 +3 ", str(dp), re.MULTILINE)
    assert re.search(r"^  SGD.learning_rate: rule 'linear' .* warm-up over 50 reference steps$", str(dp), re.MULTILINE)


def test_auto_warmup_without_the_length_of_an_epoch():
    dp = grown(4, warmup_epochs="auto")
    with pytest.raises(ScalingError, match=r"without examples_per_epoch\. Give examples_per_epoch to the recipe"):
        dp.optimizer(keras.optimizers.SGD(0.1))
    # No other rule warms up by itself.
    dp.optimizer(keras.optimizers.Adam(0.1))


def test_schedule():
    cosine = keras.optimizers.schedules.CosineDecay(0.1, 100)
    dp = grown(4, rule="linear", warmup_epochs=1, examples_per_epoch=80)
    made = dp.schedule(cosine)
    assert made.get_config() == ReplicaSchedule(cosine, 4, rule="linear", warmup_steps=10).get_config()
    assert float(grown(4, rule=SqrtRule()).schedule(0.1)(0)) == pytest.approx(0.2)
    with pytest.raises(ScalingError, match="only once"):
        dp.optimizer(keras.optimizers.SGD(made))
    with pytest.raises(ScalingError, match=r"'auto' goes by the optimizer(.|\n)*rule='linear'"):
        grown(4).schedule(cosine)


def test_table():
    dp = grown(8, examples_per_epoch=1000)
    dp.optimizer(keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 1000), momentum=0.9))
    with dp.scope():
        dp.prepare(keras.Sequential([keras.Input((2,)), keras.layers.BatchNormalization(momentum=0.9)], name="net"))
    rows = [re.split(r" {2,}", line) for line in str(dp).splitlines()]
    assert rows[0] == ["1 replica, global batch 64, reference batch 8: batch_ratio 8."]
    assert rows[2:10] == [
        ["name", "unit", "old", "new", "rule"],
        ["global batch", "examples", "8", "64", "x r"],
        ["epoch", "steps", "125", "16", "/ r, rounded up"],
        ["SGD.learning_rate", "per step", "CosineDecay", "8 * CosineDecay(step * 8)", "f s(step r)"],
        ["SGD.learning_rate.decay_steps", "steps", "1000", "125", "/ r"],
        ["SGD.learning_rate.initial_learning_rate", "per step", "0.1", "0.8", "x f"],
        ["SGD.momentum", "per step", "0.9", "0.9", "unchanged"],
        ["net: momentum of 1 BatchNormalization", "per step", "0.9", "0.430467", "m^r"],
    ]
    assert rows[10:12] == [[""], ["Why:"]]


def test_models_are_listed_in_the_order_of_their_preparing():
    dp = grown(8)
    with dp.scope():
        names = [f"net_{index}" for index in (3, 1, 4, 0, 5, 2)]
        models = [keras.Sequential([keras.Input((2,)), keras.layers.BatchNormalization()], name=name) for name in names]
        kept = [dp.prepare(model) for model in [*models, models[0]]]
    assert re.findall(r"^(net_\d): momentum", str(dp), re.MULTILINE) == names
    assert len(kept) == 7


def test_table_before_anything_was_derived():
    assert "pass the optimizer through `dp.optimizer`" in str(grown(4))


def test_batch_norm_momentum(tmp_path):
    dp = grown(4)
    with dp.scope():
        norm = keras.layers.BatchNormalization(momentum=0.9)
        model = dp.prepare(keras.Sequential([keras.Input((2,)), keras.Sequential([norm]), keras.layers.Dense(1)]))
        assert norm.momentum == pytest.approx(0.9**4)
        dp.prepare(model)
        model.compile("sgd", "mse")
    x = np.linspace(0, 6, 64, dtype="float32").reshape(32, 2)
    model.fit(x, np.ones((32, 1)), verbose=0)
    assert norm.momentum == pytest.approx(0.9**4)
    moving = norm.moving_mean.numpy()
    np.testing.assert_allclose(moving, (1 - 0.9**4) * x.mean(axis=0), rtol=1e-5)
    # A file is that of the unprepared model, and a model loaded from it is prepared anew.
    model.save(tmp_path / "model.keras")
    with dp.scope():
        loaded = keras.models.load_model(tmp_path / "model.keras")
        again = loaded.layers[0].layers[0]
        assert again.momentum == 0.9
        dp.prepare(loaded)
    assert again.momentum == pytest.approx(0.9**4)
    np.testing.assert_array_equal(again.moving_mean.numpy(), moving)
    # One set by hand since is the new reference.
    norm.momentum = 0.5
    dp.prepare(model)
    assert norm.momentum == 0.5**4


def test_refuses_an_optimizer_twice():
    dp = grown(4)
    made = dp.optimizer(keras.optimizers.Adam())
    for again in (made, keras.optimizers.LossScaleOptimizer(made)):
        with pytest.raises(ScalingError, match=r"only once(.|\n)*came from `dp.optimizer`"):
            dp.optimizer(again)


def test_refuses_an_optimizer_with_state():
    dp = grown(4)
    with dp.scope():
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build([keras.Variable(1.0)])
    with pytest.raises(ScalingError, match=r"before it trains(.|\n)*Pass one that was just made"):
        dp.optimizer(optimizer)


def constant():
    return 0.1


@pytest.mark.parametrize("replicas", [1, 4])
def test_refuses_what_has_no_config(replicas):
    with pytest.raises(ScalingError, match=r"ScheduleWithoutConfig(.|\n)*Write the `get_config`(.|\n)*`dp.schedule"):
        grown(replicas).optimizer(keras.optimizers.Adam(ScheduleWithoutConfig()))


@pytest.mark.filterwarnings("ignore:Not understood")
@pytest.mark.parametrize("make", [lambda: OwnHabit(1), lambda: keras.optimizers.SGD(constant)])
def test_refuses_what_cannot_be_made_anew(make):
    with pytest.raises(ScalingError, match="from_config"):
        grown(4).optimizer(make())


@pytest.mark.parametrize("value", [None, 3, keras.optimizers.SGD, object()])
def test_refuses_what_is_no_optimizer(value):
    with pytest.raises(ScalingError, match=r"takes a Keras optimizer(.|\n)*Received: "):
        grown(4).optimizer(value)


@pytest.mark.parametrize(
    ("arguments", "error", "rule"),
    [
        ({"rule": "cubic"}, ScalingError, "`rule` must say"),
        ({"rule": NoRule}, ScalingError, "Give an instance"),
        ({"warmup_epochs": -1}, ScalingError, "`warmup_epochs` must be"),
        ({"warmup_epochs": "five"}, ScalingError, "`warmup_epochs` must be"),
        ({"examples_per_epoch": 0}, BatchError, "positive integer"),
        ({"reference_batch": 0}, BatchError, "`reference_batch` must be a positive integer"),
    ],
)
def test_bad_recipe(arguments, error, rule):
    with pytest.raises(error, match=rf"{rule}"):
        grown(4, **arguments)


def test_both_batches():
    with pytest.raises(BatchError, match="Exactly one"):
        DataParallel(8, global_batch=4, devices=1)


@pytest.mark.parametrize("replicas", [1, 2])
def test_grown_run_is_one_replicas_run_with_the_larger_batch(replicas):
    """The re-derived recipe, on replicas: the same weights as written by hand for one device."""
    found = run_case(f"{CASES}:train", args=(replicas,))
    for one, other in zip(found["by hand"], found["weights"], strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-6)

"""Every knob of every optimizer, against a closed form that is written here and not taken from the library."""

import copy
import json
import math

import pytest

from tfscale import ScalingError, scale_hyperparameters

R = 8
ROOT = math.sqrt(R)


def scale(class_name, ratio=R, rule="auto", adam_beta_1="keep", **knobs):
    config = {"class_name": class_name, "config": knobs}
    return scale_hyperparameters(config, ratio, rule=rule, adam_beta_1=adam_beta_1)


def changed(class_name, ratio=R, rule="auto", adam_beta_1="keep", **knobs):
    """The knobs that changed, by name."""
    found = scale(class_name, ratio, rule, adam_beta_1, **knobs).knobs
    return {knob.name: knob.new for knob in found if knob.is_changed}


ADAM = {"beta_2": 0.999**R, "epsilon": 1e-7 / ROOT}
LION_BETAS = (0.9 * 0.99**7, 0.99**8)


def lion_noise(beta_1, beta_2):
    """The variance of b1 m + (1 - b1) g for noise g of variance 1: a geometric series."""
    return (1 - beta_1) ** 2 + sum((beta_1 * (1 - beta_2) * beta_2**k) ** 2 for k in range(5000))


LION = math.sqrt(R * lion_noise(*LION_BETAS) / lion_noise(0.9, 0.99))


@pytest.mark.parametrize(
    ("class_name", "expected"),
    [
        ("SGD", {"learning_rate": 0.01 * R}),
        ("Adam", {"learning_rate": 0.001 * ROOT, **ADAM}),
        ("AdamW", {"learning_rate": 0.001 * ROOT, "weight_decay": 0.004 * ROOT, **ADAM}),
        ("Nadam", {"learning_rate": 0.001 * ROOT, **ADAM}),
        ("Adamax", {"learning_rate": 0.001 * ROOT, "epsilon": 1e-7 / ROOT}),
        ("RMSprop", {"learning_rate": 0.001 * ROOT, "rho": 0.9**R, "epsilon": 1e-7 / R}),
        ("Adagrad", {"initial_accumulator_value": 0.1 / R**2, "epsilon": 1e-7 / R**2}),
        ("Adadelta", {"learning_rate": 0.001 * ROOT}),
        ("Adafactor", {"learning_rate": 0.001 * ROOT, "epsilon_1": 1e-30 / R}),
        ("Ftrl", {"initial_accumulator_value": 0.1 / R**2}),
        ("Lamb", {"learning_rate": 0.001 * ROOT, "beta_2": 0.999**R, "epsilon": 1e-7 / ROOT}),
        ("Lion", {"learning_rate": 0.001 * LION, "beta_1": LION_BETAS[0], "beta_2": LION_BETAS[1]}),
        (
            "Muon",
            {
                "learning_rate": 0.001 * ROOT,
                "weight_decay": 0.004 * ROOT,
                "adam_weight_decay": 0.004 * ROOT,
                "adam_beta_2": 0.999**R,
                "epsilon": 1e-7 / ROOT,
            },
        ),
        ("ScheduleFreeAdamW", {"learning_rate": 0.0025 * ROOT, "beta_2": 0.999**R, "epsilon": 1e-8 / ROOT}),
    ],
)
def test_defaults_of_every_optimizer(class_name, expected):
    assert changed(class_name) == pytest.approx(expected)
    # The same from the config as Keras spells it in a file, in lower case.
    assert changed(class_name.lower()) == pytest.approx(expected)


OTHERS = ("SGD", "RMSprop", "Adagrad", "Adadelta", "Adafactor", "Ftrl", "Lamb", "Lion", "ScheduleFreeAdamW")


@pytest.mark.parametrize(
    ("class_name", "knob"),
    [(name, "beta_1") for name in ("Adam", "AdamW", "Nadam", "Adamax")] + [("Muon", "adam_beta_1")],
)
def test_beta_1_of_adam_and_its_kin_is_kept_unless_asked_for(class_name, knob):
    # Muon's knob has the name of the argument.
    config = {"class_name": class_name, "config": {knob: 0.95}}
    [kept] = [row for row in scale_hyperparameters(config, R).knobs if row.name == knob]
    assert (kept.old, kept.new, kept.rule) == (0.95, 0.95, "kept")
    assert "adam_beta_1='memory'" in kept.reason
    rows = scale_hyperparameters(config, R, adam_beta_1="memory").knobs
    [asked] = [row for row in rows if row.name == knob]
    assert (asked.new, asked.rule) == (pytest.approx(0.95**R), "m^r")
    assert "as asked for" in asked.reason
    # And nothing else.
    others = [row for row in scale_hyperparameters(config, R).knobs if row.name != knob]
    assert [row for row in rows if row.name != knob] == others


@pytest.mark.parametrize("class_name", OTHERS)
def test_beta_1_of_others_is_not_asked_for(class_name):
    assert changed(class_name, adam_beta_1="memory") == changed(class_name)


def test_beta_1_inside_of_others():
    inner = {"class_name": "Adam", "config": {"beta_1": 0.8}}
    config = scale("LossScaleOptimizer", adam_beta_1="memory", inner_optimizer=inner).config
    assert config["config"]["inner_optimizer"]["config"]["beta_1"] == pytest.approx(0.8**R)
    config = {"class_name": "Mine", "module": "my", "config": {"beta_1": 0.8}}
    assert scale_hyperparameters(config, R, like="Adam").config["config"]["beta_1"] == 0.8


@pytest.mark.parametrize("value", ["kept", "", "MEMORY", None, True, 0.9, ["keep"], 10**400, "x" * 5000])
def test_unknown_way_for_beta_1(value):
    with pytest.raises(ScalingError, match="`adam_beta_1` must be 'keep', or 'memory'") as caught:
        scale("SGD", adam_beta_1=value)
    assert "\nReceived: adam_beta_1=" in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("class_name", "rule", "knobs", "expected"),
    [
        ("SGD", "auto", {"momentum": 0.9, "nesterov": True, "weight_decay": 5e-4}, {"learning_rate": 0.01 * R}),
        ("SGD", "sqrt", {"weight_decay": 5e-4}, {"learning_rate": 0.01 * ROOT, "weight_decay": 5e-4 * ROOT}),
        ("SGD", "none", {"weight_decay": 5e-4}, {"weight_decay": 5e-4 * R}),
        ("SGD", 2.0, {"weight_decay": 5e-4}, {"learning_rate": 0.02, "weight_decay": 5e-4 * R / 2}),
        ("SGD", "adascale", {"momentum": 0.9, "weight_decay": 5e-4}, {"learning_rate": None, "weight_decay": None}),
        ("SGD", "adascale", {"use_ema": True}, {"ema_momentum": 0.99**R}),
        ("AdamW", "none", {}, {"weight_decay": 0.004 * R, **ADAM}),
        ("AdamW", "linear", {}, {"learning_rate": 0.001 * R, **ADAM}),
        ("Adam", "auto", {"weight_decay": 0.01, "beta_1": 0.0}, {"weight_decay": 0.01 * ROOT, "beta_1": None}),
        ("RMSprop", "auto", {"momentum": 0.9}, {"rho": 0.9**R, "momentum": None}),
        ("Adam", "auto", {"clipnorm": 1.0, "loss_scale_factor": 4.0, "gradient_accumulation_steps": 4}, ADAM),
        ("Ftrl", "auto", {"learning_rate_power": 0.0}, {"learning_rate": 0.001 * R}),
        ("Ftrl", "auto", {"learning_rate_power": -0.75}, {"learning_rate": 0.001 / ROOT}),
        (
            "Ftrl",
            "auto",
            {"beta": 1.0, "l1_regularization_strength": 2.0, "l2_regularization_strength": 3.0},
            {"beta": 1 / R, "l1_regularization_strength": 2 / R, "l2_regularization_strength": 3 / R},
        ),
        ("Ftrl", "linear", {"beta": 1.0}, {"learning_rate": 0.001 * R, "beta": None}),
        ("Ftrl", "auto", {"l2_shrinkage_regularization_strength": 1.0}, {"l2_shrinkage_regularization_strength": None}),
        ("ScheduleFreeAdamW", "auto", {"warmup_steps": 100}, {"warmup_steps": 12.5, "beta_1": None}),
        ("ScheduleFreeAdamW", "auto", {"warmup_steps": 4}, {"warmup_steps": 0.5}),
        ("SGD", "auto", {"use_ema": True}, {"ema_momentum": 0.99**R}),
        ("SGD", "auto", {"use_ema": False, "ema_momentum": 0.9}, {"ema_momentum": None}),
        (
            "SGD",
            "auto",
            {"use_ema": True, "ema_momentum": 0.9, "ema_overwrite_frequency": 80},
            {"ema_momentum": 0.9**R, "ema_overwrite_frequency": 10},
        ),
    ],
)
def test_knobs_that_were_set(class_name, rule, knobs, expected):
    found = changed(class_name, rule=rule, **knobs)
    assert {name: found.get(name) for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize(("steps", "ratio", "whole"), [(1, 8, 1), (3, 8, 1), (12, 8, 2), (100, 8, 13), (10, 0.5, 20)])
def test_a_period_is_whole_and_at_least_one(steps, ratio, whole):
    [knob] = [
        k for k in scale("SGD", ratio, use_ema=True, ema_overwrite_frequency=steps).knobs if "frequency" in k.name
    ]
    assert knob.new == whole
    assert type(knob.new) is int
    assert ("rounded" in knob.reason) == (steps / ratio != whole)


def test_a_complete_config_gets_no_knob_that_its_keras_has_not_got():
    # Keras 3.12 had no adam_weight_decay; in a config by hand, it has its default.
    base = dict.fromkeys(["weight_decay", "clipnorm", "global_clipnorm", "clipvalue", "ema_overwrite_frequency"])
    base |= {"ema_momentum": 0.99, "loss_scale_factor": None, "gradient_accumulation_steps": None, "use_ema": False}
    config, knobs = scale("Muon", learning_rate=0.1, **base)
    assert config["config"].keys() == {"learning_rate", *base}
    assert "adam_weight_decay" not in {knob.name for knob in knobs}
    assert "adam_weight_decay" in changed("Muon", learning_rate=0.1)


def test_unchanged_knobs_are_listed_with_a_reason():
    knobs = {knob.name: knob for knob in scale("Adam", clipnorm=1.0, gradient_accumulation_steps=2).knobs}
    for name in ("clipnorm", "gradient_accumulation_steps"):
        assert not knobs[name].is_changed
        assert knobs[name].rule == "unchanged"
        assert knobs[name].reason
    assert "momentum schedule 0.96^step" in {knob.name for knob in scale("Nadam").knobs}


def test_what_has_no_effect_has_no_row():
    names = {knob.name for knob in scale("SGD", clipnorm=None, weight_decay=None, ema_momentum=0.99, name="sgd").knobs}
    assert names == {"learning_rate", "momentum"}


def test_loss_scale_around_another():
    inner = {"class_name": "Adam", "config": {"learning_rate": 0.001}}
    config, knobs = scale("LossScaleOptimizer", inner_optimizer=inner, initial_scale=1024.0, dynamic_growth_steps=2000)
    assert config["config"]["dynamic_growth_steps"] == 250
    assert config["config"]["initial_scale"] == 1024
    assert config["config"]["inner_optimizer"]["config"]["learning_rate"] == pytest.approx(0.001 * ROOT)
    assert "inner_optimizer.beta_2" in {knob.name for knob in knobs}
    growth = scale("LossScaleOptimizer", inner_optimizer=inner, dynamic_growth_steps=3).knobs[-1]
    assert (growth.name, growth.new) == ("dynamic_growth_steps", 1)


def test_several_optimizers_each_by_its_rule():
    def part(name):
        return {"class_name": name, "config": {"learning_rate": 1.0}}

    choice = {"default_optimizer": part("SGD"), "optimizer_map": {"encoder/.*": part("Adam")}}
    config, knobs = scale("MultiOptimizer", optimizer_map={"class_name": "OptimizerMap", "config": choice})
    rates = {knob.name: knob.new for knob in knobs if knob.name.endswith("learning_rate")}
    assert rates == pytest.approx(
        {"default_optimizer.learning_rate": 8, "optimizer_map['encoder/.*'].learning_rate": ROOT}
    )
    scaled = config["config"]["optimizer_map"]["config"]
    assert scaled["default_optimizer"]["config"]["learning_rate"] == 8
    assert scaled["optimizer_map"]["encoder/.*"]["config"]["learning_rate"] == pytest.approx(ROOT)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"class_name": "Adam", "config": {"shampoo": 3}}, {"shampoo"}),
        ({"class_name": "MyOptimizer", "config": {"learning_rate": 0.1, "beta_1": 0.9}}, {"beta_1"}),
        ({"class_name": "Adam", "module": "my.module", "config": {"learning_rate": 0.1, "beta_1": 0.9}}, {"beta_1"}),
        (
            {"class_name": "SGD", "config": {"learning_rate": {"class_name": "function", "config": "f"}}},
            {"learning_rate"},
        ),
        ({"class_name": "SGD", "config": {"learning_rate": "f"}}, {"learning_rate"}),
        ({"class_name": "LossScaleOptimizer", "config": {}}, {"inner_optimizer"}),
        ({"class_name": "MultiOptimizer", "config": {"optimizer_map": {"class_name": "function"}}}, {"optimizer_map"}),
    ],
)
def test_what_is_not_understood_is_said_and_left_alone(config, named):
    with pytest.warns(UserWarning, match="Not understood") as caught:
        scaled, knobs = scale_hyperparameters(config, R)
    assert len(caught) == 1
    assert {knob.name for knob in knobs if not knob.is_understood} == named
    for name in named & config["config"].keys():
        assert name in str(caught[0].message)
        assert scaled["config"][name] == config["config"][name]


def test_unknown_optimizer_gets_the_rate_and_what_every_optimizer_has():
    config = {
        "class_name": "MyOptimizer",
        "config": {"learning_rate": 0.1, "q": 0.9, "use_ema": True, "ema_momentum": 0.99, "weight_decay": 0.01},
    }
    with pytest.warns(UserWarning, match="like='Adam'"):
        scaled = scale_hyperparameters(config, R).config["config"]
    expected = {"learning_rate": 0.1 * ROOT, "q": 0.9, "ema_momentum": 0.99**R, "weight_decay": 0.01 * ROOT}
    assert {name: scaled[name] for name in expected} == pytest.approx(expected)
    with pytest.warns(UserWarning, match="q"):
        assert scale_hyperparameters(config, R, rule="linear").config["config"]["learning_rate"] == pytest.approx(0.8)


def test_a_class_of_ones_own_like_one_of_keras():
    config = {"class_name": "MyAdam", "module": "my", "config": {"learning_rate": 0.1, "beta_1": 0.9, "beta_2": 0.99}}
    scaled = scale_hyperparameters(config, R, like="Adam").config["config"]
    assert scaled["beta_2"] == pytest.approx(0.99**R)
    with pytest.raises(ScalingError, match="`like` must be"):
        scale_hyperparameters(config, R, like="MyAdam")


@pytest.mark.parametrize(
    "config",
    [
        None,
        "adam",
        [],
        {},
        {"class_name": "Adam"},
        {"config": {}},
        {"class_name": "Adam", "config": 3},
        {"learning_rate": 1},
    ],
)
def test_malformed_config(config):
    with pytest.raises(ScalingError, match="must have the form"):
        scale_hyperparameters(config, 2)


@pytest.mark.parametrize(
    ("class_name", "knobs", "rule"),
    [
        ("Adam", {"beta_1": 1.5}, "`beta_1` must be a number from 0 to 1"),
        ("Adam", {"beta_1": -0.1}, "`beta_1` must be a number from 0 to 1"),
        ("Adam", {"beta_2": "0.9"}, "`beta_2` must be a number from 0 to 1"),
        ("Adam", {"beta_2": math.nan}, "`beta_2` must be a number from 0 to 1"),
        ("Adam", {"epsilon": -1.0}, "`epsilon` must be a finite number"),
        ("SGD", {"learning_rate": math.nan}, "`learning_rate` must be a finite number"),
        ("SGD", {"use_ema": True, "ema_overwrite_frequency": 0}, "whole number of steps, at least 1"),
        ("SGD", {"use_ema": True, "ema_overwrite_frequency": 2.5}, "whole number of steps, at least 1"),
        ("SGD", {"use_ema": True, "ema_overwrite_frequency": True}, "whole number of steps, at least 1"),
        ("Lion", {"beta_1": 1.0}, "betas of Lion"),
        ("Ftrl", {"learning_rate_power": 0.5}, "0 or less"),
    ],
)
def test_impossible_knobs(class_name, knobs, rule):
    with pytest.raises(ScalingError, match=rule) as caught:
        scale(class_name, **knobs)
    assert "\nReceived: " in str(caught.value)


def test_a_beta_that_vanishes_is_refused():
    with pytest.raises(ScalingError, match="`beta_1` must stay between 0 and 1"):
        scale("Adam", ratio=10_000, adam_beta_1="memory")
    assert scale("Adam", ratio=10_000).config["config"].get("beta_1", 0.9) == 0.9
    with pytest.raises(ScalingError, match="`beta_2` must stay between 0 and 1"):
        scale("Adam", ratio=1_000_000)
    with pytest.raises(ScalingError, match=r"`beta_2` must stay between 0 and 1(.|\n)*becomes 1\.0"):
        scale("Adam", ratio=1e-18)


@pytest.mark.parametrize("steps", [-1, math.nan, math.inf, True, "5", None])
def test_malformed_warmup(steps):
    with pytest.raises(ScalingError, match="`warmup_steps` must be a number"):
        scale_hyperparameters({"class_name": "SGD", "config": {}}, 2, warmup_steps=steps)


@pytest.mark.parametrize("class_name", ["SGD", "AdamW", "Ftrl", "Lion", "MyOptimizer"])
def test_ratio_1_changes_nothing_and_says_so(class_name):
    schedule = {"class_name": "CosineDecay", "config": {"initial_learning_rate": 0.1, "decay_steps": 10}}
    config = {"class_name": class_name, "config": {"learning_rate": schedule, "use_ema": True, "x": 1}}
    before = copy.deepcopy(config)
    scaled, knobs = scale_hyperparameters(config, 1, warmup_steps=5)
    assert scaled == before
    assert scaled is not config
    assert knobs
    for knob in knobs:
        assert (knob.new, knob.rule) == (knob.old, "unchanged")
        assert "batch_ratio is 1" in knob.reason


def test_the_given_config_is_not_modified():
    config = {"class_name": "LossScaleOptimizer", "config": {"inner_optimizer": {"class_name": "SGD", "config": {}}}}
    before = copy.deepcopy(config)
    scale_hyperparameters(config, R)
    assert config == before


def test_the_result_is_json_and_marked():
    config = scale("Adam", rule=lambda ratio: ratio**0.25).config
    assert json.loads(json.dumps(config)) == config
    assert config["batch_ratio"] == R


@pytest.mark.parametrize(
    "config",
    [
        scale_hyperparameters({"class_name": "SGD", "config": {}}, 2).config,
        {"class_name": "SGD", "config": {"learning_rate": {"class_name": "ReplicaSchedule", "config": {}}}},
        {
            "class_name": "SGD",
            "config": {
                "learning_rate": {
                    "class_name": "Mine",
                    "config": {"after": [{"registered_name": "tfscale>ReplicaSchedule"}]},
                }
            },
        },
        {
            "class_name": "LossScaleOptimizer",
            "config": {"inner_optimizer": scale_hyperparameters({"class_name": "Adam", "config": {}}, 2).config},
        },
    ],
)
@pytest.mark.parametrize("ratio", [1, 2])
def test_compensating_twice_is_refused(config, ratio):
    with pytest.raises(ScalingError, match="only once"):
        scale_hyperparameters(config, ratio)


def test_adascale_measures_the_rate_and_leaves_the_schedule():
    schedule = {"class_name": "CosineDecay", "config": {"initial_learning_rate": 0.1, "decay_steps": 100}}
    config = {"class_name": "SGD", "config": {"learning_rate": schedule}}
    scaled = scale_hyperparameters(config, R, rule="adascale")
    assert scaled.config["config"]["learning_rate"] == schedule
    rate = scaled.knobs[0]
    assert (rate.name, rate.old, rate.new, rate.rule) == ("learning_rate", "CosineDecay", "CosineDecay", "x gain")
    assert "a gain from 1 to 8" in rate.reason


@pytest.mark.parametrize(
    ("class_name", "warmup_steps", "said"),
    [("Adam", 0, "is for SGD"), ("Mine", 0, "not known"), ("SGD", 10, "needs no warm-up")],
)
def test_adascale_refused(class_name, warmup_steps, said):
    with pytest.raises(ScalingError, match=said):
        scale_hyperparameters({"class_name": class_name, "config": {}}, R, rule="adascale", warmup_steps=warmup_steps)


def test_adascale_is_not_re_derived():
    for config in ({"class_name": "AdaScaleSGD"}, {"class_name": "SGD", "registered_name": "tfscale>AdaScaleSGD"}):
        with pytest.raises(ScalingError, match="only once"):
            scale_hyperparameters({**config, "config": {}}, R)

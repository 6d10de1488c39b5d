"""Every optimizer and schedule that the installed Keras has is one that the tables know, to the last argument."""

import pytest

from tests.processes import run_case
from tfscale.scaling.optimizer_table import BASE_KNOBS, BASE_SWITCHES, OPTIMIZERS
from tfscale.scaling.schedule_config import KERAS_SCHEDULES, RATES, STEPS

WRAPPERS = {"LossScaleOptimizer", "MultiOptimizer"}
NOT_IN_OLDER_KERAS = {"Muon": {"adam_weight_decay", "rms_rate"}}
# Arguments of schedules that are neither steps nor rates, but shapes.
SHAPES = {"alpha", "cycle", "decay_rate", "m_mul", "name", "power", "staircase", "t_mul"}


@pytest.fixture(scope="module")
def keras_says():
    return run_case("tests.scaling.cases_keras:describe")


def test_every_optimizer_is_covered(keras_says):
    configs, _, _ = keras_says
    assert configs.keys() - WRAPPERS == OPTIMIZERS.keys() & configs.keys()
    # One that an older Keras lacks may be known all the same.
    assert OPTIMIZERS.keys() - configs.keys() <= {"Muon", "ScheduleFreeAdamW"}


def test_every_argument_is_covered_with_its_default(keras_says):
    configs, _, _ = keras_says
    for name in configs.keys() - WRAPPERS:
        known = OPTIMIZERS[name]
        table = {**known.knobs, **BASE_KNOBS}
        defaults = {knob: default for knob, (default, _) in table.items()} | dict(known.base)
        defaults["learning_rate"] = known.learning_rate
        quantities = {key: value for key, value in configs[name].items() if key not in BASE_SWITCHES | known.switches}
        missing = defaults.keys() - quantities.keys()
        if missing:
            # The defaults are those of the newest Keras; what a config holds does not depend on them.
            assert missing == NOT_IN_OLDER_KERAS[name]
            assert quantities.keys() <= defaults.keys()
        else:
            assert quantities == pytest.approx(defaults), name


def test_keras_makes_an_optimizer_of_every_result(keras_says):
    _, _, results = keras_says
    for name, (scaled, made) in results.items():
        for key, value in scaled.items():
            # What lies inside is written anew by Keras, without our mark.
            if not isinstance(value, dict):
                expected = pytest.approx(value, rel=1e-6) if isinstance(value, float) else value
                assert made[key] == expected, (name, key)


def test_every_schedule_and_its_arguments_are_covered(keras_says):
    _, schedules, _ = keras_says
    assert schedules.keys() == KERAS_SCHEDULES
    arguments = {argument for names in schedules.values() for argument in names}
    assert arguments == {*STEPS, *RATES, *SHAPES} - {"interval"}  # of our own StepDecay

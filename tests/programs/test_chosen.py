"""The programs that matter most, on three replicas; `make programs` runs all of them, on 1, 2, 3 and two workers."""

import pytest

from tests.programs.test_programs import run_programs

# One of each kind of script, and the cheapest of its kind.
CHOSEN = (
    "autoencoder",
    "batch_centering",
    "custom_loop",
    "cycle_gan",
    "distillation",
    "endpoint_layer",
    "gan_module_level",
    "guide_train_step",
    "loss_vector",
    "masked_language_model",
    "optimizers_in_dict",
    "projection_head",
    "switched_by_callback",
)


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    return run_programs([*CHOSEN, "--replicas", "3"], tmp_path_factory.mktemp("programs"))


@pytest.mark.parametrize("name", CHOSEN)
def test_program_ends_as_it_should_on_three_replicas(verdicts, name):
    for setting, (word, detail, expected, output) in verdicts[name].items():
        assert expected, f"{name}, {setting}: {word}: {detail}\n{output}"

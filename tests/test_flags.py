"""The absl flags, and the `DataParallel` that they make."""

import inspect

import pytest
from absl import flags as absl_flags

import tfscale
from tests.processes import run_case
from tfscale import BatchError, CommunicationError, DataParallel, ScalingError, flags

# A strategy is an object; and these have other names as flags.
RENAMED = {"strategy": None, "recipe": None, "rule": "scaling_rule"}
OWN = {"simulate_replicas", "adam_beta_1", "critical_batch", "clipped_share"}


def parsed(*arguments, **defaults):
    values = absl_flags.FlagValues()
    flags.define(flag_values=values, **defaults)
    values(["train.py", *arguments])
    return values


def made(*arguments, **defaults):
    return flags.data_parallel(flag_values=parsed("--devices=1", *arguments, **defaults))


def test_every_argument_has_a_flag():
    arguments = {RENAMED.get(name, name) for name in inspect.signature(DataParallel).parameters}
    assert set(parsed()) == (arguments - {None}) | OWN


def test_all_flags():
    dp = made(
        "--per_replica_batch=64",
        "--reference_batch=16",
        "--examples_per_epoch=160",
        "--scaling_rule=linear",
        "--warmup_epochs=0.5",
        "--batch_norm=synchronized",
        "--adam_beta_1=memory",
        "--critical_batch=600",
        "--clipped_share=0.5",
    )
    assert (dp._growth.adam_beta_1, dp._growth.critical_batch, dp._growth.clipped_share) == ("memory", 600, 0.5)
    assert (dp.global_batch, dp.batch_ratio, dp._batch_norm) == (64, 4, "synchronized")
    # Half an epoch is 5 steps of 16.
    assert dp.schedule(0.1).get_config()["warmup_steps"] == 5


@pytest.mark.parametrize(
    ("arguments", "defaults", "ratio", "batch"),
    [
        ([], {"global_batch": 64}, 1, 64),
        (["--global_batch=32"], {"global_batch": 64}, 1, 32),
        (["--per_replica_batch=32"], {"global_batch": 64}, 1, 32),
        (["--global_batch=32"], {"per_replica_batch": 64}, 1, 32),
        (["--global_batch=32"], {"per_replica_batch": 64, "reference_batch": 16}, 2, 32),
    ],
)
def test_a_default_batch_yields_to_the_command_line(arguments, defaults, ratio, batch):
    dp = made(*arguments, **defaults)
    assert (dp.batch_ratio, dp.global_batch) == (ratio, batch)


@pytest.mark.parametrize(
    ("text", "value"), [("auto", "auto"), ("2", 2), ("GPU:0,GPU:1", ["GPU:0", "GPU:1"]), ("CPU:0", ["CPU:0"])]
)
def test_devices(text, value):
    assert flags._arguments(parsed(f"--devices={text}"))["devices"] == value


@pytest.mark.parametrize("text", ["none", "bf16", "fp16", "powersgd", "powersgd:", "powersgd:-1", "anything"])
def test_compression_by_name(text):
    assert flags._arguments(parsed(f"--compression={text}"))["compression"] == text


def test_compression_with_a_rank():
    assert flags._arguments(parsed("--compression=powersgd:4"))["compression"].rank == 4
    with pytest.raises(CommunicationError, match="Received: rank=0"):
        made("--global_batch=8", "--compression=powersgd:0")
    with pytest.raises(CommunicationError, match="Received: compression='powersgd'"):
        made("--global_batch=8", "--compression=powersgd")


def test_arguments_go_before_flags():
    values = parsed("--global_batch=8", "--devices=1")
    strategy = tfscale.make_strategy(devices=1)
    assert flags.data_parallel(flag_values=values, strategy=strategy, devices="auto").strategy is strategy


@pytest.mark.parametrize(
    ("arguments", "error", "rule"),
    [
        ([], BatchError, "Exactly one"),
        (["--global_batch=8", "--per_replica_batch=8"], BatchError, "Exactly one"),
        (["--global_batch=8", "--warmup_epochs=five"], ScalingError, "`warmup_epochs` must be"),
        (["--global_batch=0"], absl_flags.IllegalFlagValueError, "lower|positive|at least|>= 1"),
        (["--global_batch=8", "--critical_batch=0"], ScalingError, "`critical_batch` must be"),
        (["--global_batch=8", "--clipped_share=20"], ScalingError, "`clipped_share` must be"),
        (["--adam_beta_1=kept"], absl_flags.IllegalFlagValueError, "memory"),
        (["--scaling_rule=cubic"], absl_flags.IllegalFlagValueError, "linear"),
    ],
)
def test_bad_flags(arguments, error, rule):
    with pytest.raises(error, match=rule):
        made(*arguments)


def test_default_for_no_flag():
    with pytest.raises(TypeError, match=r"Received: batch_size\."):
        parsed(batch_size=8)


def test_simulated_replicas():
    assert run_case("tests.cases_flags:replicas", args=(3,), fresh=True) == (False, 3)

"""The absl flags, and the `DataParallel` that they make."""

import dataclasses
import inspect
from typing import Any

import pytest
from absl import flags as absl_flags

import tfscale
from tests.processes import run_case
from tfscale import (
    BatchError,
    ClusterError,
    CommunicationError,
    DataParallel,
    Network,
    Recipe,
    ScalingError,
    flags,
)


def parsed(*arguments, **defaults):
    values = absl_flags.FlagValues()
    flags.define(flag_values=values, **defaults)
    values(["train.py", *arguments])
    return values


def made(*arguments, **defaults):
    return flags.data_parallel(flag_values=parsed("--devices=1", *arguments, **defaults))


def test_every_argument_and_every_field_has_a_flag():
    own = set(inspect.signature(DataParallel).parameters) - {"recipe", "network"}
    fields = {field.name for group in (Recipe, Network) for field in dataclasses.fields(group)}
    assert set(parsed()) == own | (fields - {"rule"}) | {"scaling_rule", "simulate_replicas"}


def test_flags_say_what_arguments_and_fields_say_by_default():
    values = parsed()
    signature = inspect.signature(DataParallel).parameters
    shown = {name: each.default for name, each in signature.items() if name not in ("recipe", "network")}
    for group in (Recipe, Network):
        shown |= {field.metadata.get("flag", field.name): field.default for field in dataclasses.fields(group)}
    assert {name: values[name].value for name in shown} == shown
    assert all(values[name].help for name in shown)


def test_a_new_field_is_a_flag_without_more_ado():
    @dataclasses.dataclass(frozen=True)
    class Group:
        rounds: int | None = dataclasses.field(default=None, metadata={"help": "How many."})
        share: float = dataclasses.field(default=0.5, metadata={"help": "How much."})
        aloud: bool = dataclasses.field(default=False, metadata={"help": "Whether."})
        way: str = dataclasses.field(default="up", metadata={"help": "Where.", "choices": ("up", "down"), "flag": "to"})
        text: Any = dataclasses.field(default="auto", metadata={"help": "What."})

    values = absl_flags.FlagValues()
    for flag in flags._flags_of(Group).values():
        flags._define_one(flag, flag.default, values)
    values(["train.py", "--rounds=3", "--share=2", "--aloud", "--to=down"])
    assert values.flag_values_dict() == {"rounds": 3, "share": 2.0, "aloud": True, "to": "down", "text": "auto"}


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
        "--compression=bf16",
        "--double_buffering",
        "--bytes_per_pack=4096",
        "--communication=ring",
        "--timeout_s=30",
        "--micro_batch=16",
    )
    assert dp._recipe == Recipe(16, "linear", 0.5, 160, "memory", 600, 0.5)
    assert dp._network == Network("ring", 4096, "bf16", True, 30)
    assert dp.plan.micro_batch == 16
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
    assert flags._arguments(parsed(f"--devices={text}"), {})["devices"] == value


@pytest.mark.parametrize("text", ["none", "bf16", "fp16"])
def test_compression_by_name(text):
    assert flags._arguments(parsed(f"--compression={text}"), {})["network"].compression == text


def test_compression_with_a_rank():
    assert flags._arguments(parsed("--compression=powersgd:4"), {})["network"].compression.rank == 4
    with pytest.raises(CommunicationError, match="Received: rank=0"):
        made("--global_batch=8", "--compression=powersgd:0")
    for text in ("powersgd", "powersgd:", "powersgd:-1", "anything"):
        with pytest.raises(CommunicationError, match=f"Received: compression='{text}'"):
            made("--global_batch=8", f"--compression={text}")


def test_arguments_go_before_flags():
    values = parsed("--global_batch=8", "--compression=bf16", "--double_buffering", "--scaling_rule=sqrt")
    strategy = tfscale.make_strategy(devices=1)
    own = flags.data_parallel(flag_values=values, devices=strategy, compression="none", rule="linear")
    assert own.strategy is strategy
    assert own._network == Network(double_buffering=True)
    assert own._recipe == Recipe(rule="linear")
    whole = flags.data_parallel(flag_values=values, devices=1, network=Network(), recipe=Recipe(4))
    assert (whole._network, whole._recipe) == (Network(), Recipe(4))
    with pytest.raises(TypeError, match=r"tfscale\.Network\(compression='bf16'\)"):
        flags.data_parallel(flag_values=values, devices=1, network=Network(), compression="bf16")


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
        (["--communication=gloo"], absl_flags.IllegalFlagValueError, "ring"),
        (["--global_batch=8", "--reference_batch=0"], BatchError, "`reference_batch` must be"),
        (["--global_batch=8", "--bytes_per_pack=-1"], CommunicationError, "`bytes_per_pack` must be"),
        (["--global_batch=8", "--timeout_s=-1"], ClusterError, "`timeout_s` must be"),
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

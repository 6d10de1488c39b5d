"""`DataParallel` from absl flags, for scripts that run under `absl.app`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from absl import flags

from tfscale.scaling import Recipe

if TYPE_CHECKING:
    from tfscale.data_parallel import DataParallel

__all__ = ["data_parallel", "define"]

_BATCHES = ("per_replica_batch", "global_batch")
_RECIPE = ("adam_beta_1", "critical_batch", "clipped_share")


def define(*, flag_values: flags.FlagValues = flags.FLAGS, **defaults: Any) -> None:
    """Defines one absl flag for each argument of `DataParallel`.

    `--per_replica_batch`, `--global_batch`, `--reference_batch`, `--examples_per_epoch`, `--scaling_rule`,
    `--warmup_epochs`, `--batch_norm`, `--compression`, `--double_buffering`, `--communication`, `--bytes_per_pack`,
    `--devices`, `--micro_batch`, `--steps_per_execution`, `--seed`; `--adam_beta_1`, `--critical_batch` and
    `--clipped_share`, which make its `recipe`; and `--simulate_replicas` for N logical CPUs. A strategy, or a
    compression, of one's own is no flag: give it to `data_parallel`. Loads no TensorFlow.

    Args:
        flag_values: Where to define them.
        **defaults: The script's own defaults, by flag. That of one batch size yields to the other on the command line.

    Raises:
        absl.flags.DuplicateFlagError: When the script has a flag of the same name.
        TypeError: When a default is for no flag of these.

    Example:
        >>> from absl import flags
        >>> import tfscale
        >>> values = flags.FlagValues()
        >>> tfscale.flags.define(flag_values=values, global_batch=64)
        >>> values(["train.py", "--scaling_rule=sqrt"])
        ['train.py']
        >>> values.global_batch, values.scaling_rule, values.devices
        (64, 'sqrt', 'auto')
    """
    integers = {
        "per_replica_batch": "Examples of one replica in one step: the batch grows with the replicas.",
        "global_batch": "Examples of all replicas in one step: the batch is kept, and split.",
        "reference_batch": "The batch that the recipe was tuned for; by default the one that is given.",
        "examples_per_epoch": "Examples in an epoch; needed for a warm-up.",
        "simulate_replicas": "Make this many logical CPUs, to stand in for GPUs; by default none are made.",
    }
    any_integers = {
        "seed": "Seed of Python, NumPy and Keras.",
        "bytes_per_pack": "Gradients travel in packs of about this size; 0 for one pack; by default it is chosen.",
    }
    enums = {
        "scaling_rule": (("auto", "linear", "sqrt", "none", "adascale"), "By what factor the learning rate grows."),
        "adam_beta_1": (("keep", "memory"), "What becomes of beta_1 of Adam and its kin: kept, or beta_1^r."),
        "batch_norm": (("auto", "local", "synchronized"), "Which examples BatchNormalization sees."),
    }
    strings = {
        "warmup_epochs": "Epochs over which the rate rises from the reference rate, or 'auto'.",
        "communication": "'auto', 'nccl' or 'ring'.",
        "compression": "How gradients travel: 'none', 'bf16', 'fp16' or 'powersgd:RANK'.",
        "micro_batch": "Most examples of one pass on one replica, or 'auto'; by default all of them.",
        "devices": "'auto', a number, or names with commas between, such as GPU:0,GPU:1.",
    }
    floats = {
        "critical_batch": "The critical batch in examples, if it is known.",
        "clipped_share": "The share of the steps in which clipping bites, from 0 to 1, if it is known.",
    }
    others = {"double_buffering", "steps_per_execution"}
    unknown = defaults.keys() - {*integers, *enums, *strings, *any_integers, *floats, *others}
    if unknown:
        raise TypeError(f"`defaults` must be for flags that are defined here.\nReceived: {', '.join(sorted(unknown))}.")
    for name, text in integers.items():
        flags.DEFINE_integer(name, defaults.get(name), text, lower_bound=1, flag_values=flag_values)
    for name, text in any_integers.items():
        flags.DEFINE_integer(name, defaults.get(name), text, flag_values=flag_values)
    for name, text in floats.items():
        flags.DEFINE_float(name, defaults.get(name), text, flag_values=flag_values)
    for name, (values, text) in enums.items():
        default = defaults.get(name, "keep" if name == "adam_beta_1" else "auto")
        flags.DEFINE_enum(name, default, values, text, flag_values=flag_values)
    calls = "Steps per call of the compiled function, as many as are good; by default what `compile` says."
    flags.DEFINE_enum(
        "steps_per_execution", defaults.get("steps_per_execution"), ("auto",), calls, flag_values=flag_values
    )
    old = "Gradients travel during the next step, and are one step old."
    flags.DEFINE_boolean("double_buffering", defaults.get("double_buffering", False), old, flag_values=flag_values)
    for name, text in strings.items():
        default = defaults.get(name, {"compression": "none", "micro_batch": None}.get(name, "auto"))
        flags.DEFINE_string(name, None if default is None else str(default), text, flag_values=flag_values)


def data_parallel(*, flag_values: flags.FlagValues = flags.FLAGS, **arguments: Any) -> DataParallel:
    """Makes a `DataParallel` from the flags that `define` defined, after they were parsed.

    Call it before TensorFlow starts, if `--simulate_replicas` may be given.

    Args:
        flag_values: Where they are defined.
        **arguments: Arguments of `DataParallel` that go before the flags, such as `strategy`.

    Raises:
        BatchError: When no or both batch sizes are given; and whatever else `DataParallel` raises.

    Example:
        >>> from absl import flags
        >>> import tfscale
        >>> values = flags.FlagValues()
        >>> tfscale.flags.define(flag_values=values, global_batch=64)
        >>> values(["train.py", "--per_replica_batch=32", "--devices=1"])
        ['train.py']
        >>> tfscale.flags.data_parallel(flag_values=values).global_batch
        32
    """
    known: dict[str, Any] = {name: flag_values[name].value for name in _RECIPE}
    given = {**_arguments(flag_values), "recipe": Recipe(**known), **arguments}
    # Only now: parsing flags, and showing their help, needs no TensorFlow.
    if flag_values.simulate_replicas is not None:
        importlib.import_module("tfscale.training.strategy").simulate_replicas(flag_values.simulate_replicas)
    made: DataParallel = importlib.import_module("tfscale.data_parallel").DataParallel(**given)
    return made


def _arguments(values: flags.FlagValues) -> dict[str, Any]:
    names = (
        *_BATCHES,
        "reference_batch",
        "examples_per_epoch",
        "batch_norm",
        "double_buffering",
        "communication",
        "bytes_per_pack",
        "steps_per_execution",
        "seed",
    )
    found = {name: values[name].value for name in names}
    on_command_line = [name for name in _BATCHES if values[name].present]
    if len(on_command_line) == 1:
        found.update({name: None for name in _BATCHES if name not in on_command_line})
    return {
        **found,
        "rule": values.scaling_rule,
        "warmup_epochs": _number(values.warmup_epochs),
        "devices": _devices(values.devices),
        "compression": _compression(values.compression),
        "micro_batch": _count(values.micro_batch),
    }


def _number(text: str) -> Any:
    """A number, or the text as it is, for `DataParallel` to accept or to refuse."""
    try:
        return float(text)
    except ValueError:
        return text


def _count(text: str | None) -> Any:
    return int(text) if text is not None and text.removeprefix("-").isdigit() else text


def _compression(text: str) -> Any:
    name, _, rank = text.partition(":")
    if name != "powersgd" or not rank.isdigit():
        return text
    return importlib.import_module("tfscale.training.compression.power_sgd").PowerSGD(int(rank))


def _devices(text: str) -> Any:
    if text.isdigit():
        return int(text)
    return text.split(",") if ":" in text else text

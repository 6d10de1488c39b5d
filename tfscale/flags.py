"""`DataParallel` from absl flags, for scripts that run under `absl.app`."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

from absl import flags

from tfscale.gradients.network import Network
from tfscale.scaling import Recipe

if TYPE_CHECKING:
    from tfscale.data_parallel import DataParallel

__all__ = ["data_parallel", "define"]

_BATCHES = ("per_replica_batch", "global_batch")
# Arguments of `DataParallel` that are objects: each of their fields has a flag.
_GROUPS: Mapping[str, type] = {"recipe": Recipe, "network": Network}


class _Flag(NamedTuple):
    """What a flag is called, and what it takes."""

    name: str
    kind: Any
    """`int`, `float`, `bool` or `str`; or a tuple of the texts that it takes."""
    default: Any
    help: str
    least: int | None = None


_OWN = (
    _Flag("per_replica_batch", int, None, "Examples of one replica in one step: the batch grows with the replicas.", 1),
    _Flag("global_batch", int, None, "Examples of all replicas in one step: the batch is kept, and split.", 1),
    _Flag("devices", str, "auto", "'auto', a number, or names with commas between, such as GPU:0,GPU:1."),
    _Flag("batch_norm", ("auto", "local", "synchronized"), "auto", "Which examples BatchNormalization sees."),
    _Flag("micro_batch", str, None, "Most examples of one pass on one replica, or 'auto'; by default all of them."),
    _Flag("logical_replicas", int, None, "The run is that of this many replicas, on any number of devices.", 1),
    _Flag("deterministic", bool, False, "Runs of as many logical replicas are equal to the bit, on any devices."),
    _Flag(
        "steps_per_execution",
        ("auto", "always", "none"),
        "auto",
        "Several steps per call of the compiled function: where nobody can tell, always, or as `compile` says.",
    ),
    _Flag("seed", int, None, "Seed of Python, NumPy and Keras."),
)
_SIMULATE = _Flag("simulate_replicas", int, None, "Make this many logical CPUs, to stand in for GPUs.", 1)


def define(*, flag_values: flags.FlagValues = flags.FLAGS, **defaults: Any) -> None:
    """Defines one absl flag for each argument of `DataParallel`, and for each field of its `Recipe` and `Network`.

    They bear the names of the arguments and fields: `--per_replica_batch`, `--reference_batch`, `--compression` ...;
    the recipe's `rule` is `--scaling_rule`. `--simulate_replicas` makes N logical CPUs. What is an object of one's own
    (a strategy, a rule, a compression) is no flag: give it to `data_parallel`. Loads no TensorFlow.

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
    of_fields = [flag for group in _GROUPS.values() for flag in _flags_of(group).values()]
    known = [*_OWN, *of_fields, _SIMULATE]
    unknown = defaults.keys() - {flag.name for flag in known}
    if unknown:
        raise TypeError(f"`defaults` must be for flags that are defined here.\nReceived: {', '.join(sorted(unknown))}.")
    for flag in known:
        _define_one(flag, defaults.get(flag.name, flag.default), flag_values)


def _flags_of(group: type) -> dict[str, _Flag]:
    """The flags of a dataclass, by field: what its annotations and their metadata say."""
    hints = get_type_hints(group)
    return {field.name: _flag_of(field, hints[field.name]) for field in dataclasses.fields(group)}


def _flag_of(field: dataclasses.Field[Any], annotation: Any) -> _Flag:
    said = field.metadata
    kinds = [kind for kind in (bool, int, float) if annotation in (kind, kind | None)]
    kind = said.get("choices") or (kinds[0] if kinds else str)
    return _Flag(said.get("flag", field.name), kind, field.default, said["help"])


def _define_one(flag: _Flag, default: Any, flag_values: flags.FlagValues) -> None:
    given: dict[str, Any] = {"flag_values": flag_values}
    if isinstance(flag.kind, tuple):
        flags.DEFINE_enum(flag.name, default, flag.kind, flag.help, **given)
    elif flag.kind is bool:
        flags.DEFINE_boolean(flag.name, default, flag.help, **given)
    elif flag.kind is int:
        flags.DEFINE_integer(flag.name, default, flag.help, lower_bound=flag.least, **given)
    elif flag.kind is float:
        flags.DEFINE_float(flag.name, default, flag.help, **given)
    else:
        flags.DEFINE_string(flag.name, None if default is None else str(default), flag.help, **given)


def data_parallel(*, flag_values: flags.FlagValues = flags.FLAGS, **arguments: Any) -> DataParallel:
    """Makes a `DataParallel` from the flags that `define` defined, after they were parsed.

    Call it before TensorFlow starts, if `--simulate_replicas` may be given.

    Args:
        flag_values: Where they are defined.
        **arguments: What goes before the flags: arguments of `DataParallel`, such as a strategy as `devices`; or single
            fields of its recipe and its network, such as a `compression` of one's own.

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
    given = {**_arguments(flag_values, arguments), **arguments}
    # Only now: parsing flags, and showing their help, needs no TensorFlow.
    if flag_values.simulate_replicas is not None:
        importlib.import_module("tfscale.training.strategy").simulate_replicas(flag_values.simulate_replicas)
    made: DataParallel = importlib.import_module("tfscale.data_parallel").DataParallel(**given)
    return made


def _arguments(values: flags.FlagValues, before: dict[str, Any]) -> dict[str, Any]:
    """What the flags say; fields that go before them are taken out of `before`."""
    found = {flag.name: _read(values[flag.name].value, flag.name) for flag in _OWN}
    on_command_line = [name for name in _BATCHES if values[name].present]
    if len(on_command_line) == 1:
        found.update({name: None for name in _BATCHES if name not in on_command_line})
    for argument, group in _GROUPS.items():
        if argument not in before:
            found[argument] = group(**dict(_fields(values, group, before)))
    return found


def _fields(values: flags.FlagValues, group: type, before: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, flag in _flags_of(group).items():
        yield name, before.pop(name) if name in before else _read(values[flag.name].value, name)


def _read(value: Any, name: str) -> Any:
    """What a flag's text means, for `DataParallel` to accept or to refuse."""
    return _READERS[name](value) if name in _READERS and value is not None else value


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _count(text: str) -> Any:
    return int(text) if text.removeprefix("-").isdigit() else text


def _compression(text: str) -> Any:
    name, _, rank = text.partition(":")
    if name != "powersgd" or not rank.isdigit():
        return text
    return importlib.import_module("tfscale.gradients.compression.power_sgd").PowerSGD(int(rank))


def _steps(text: str) -> str | None:
    return None if text == "none" else text


def _devices(text: str) -> Any:
    if text.isdigit():
        return int(text)
    return text.split(",") if ":" in text else text


_READERS = {
    "compression": _compression,
    "devices": _devices,
    "micro_batch": _count,
    "steps_per_execution": _steps,
    "warmup_epochs": _number,
}

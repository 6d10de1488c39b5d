"""Runs the heats asked for and prints one table. The exit status is 1 when a bar is missed."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import table
from benchmarks.contenders import GROUPS, MODELS, OPTIMIZER, SMALL_MODEL, Heat, heats, models_of, quick_heat
from benchmarks.environments import make_jax_environment, make_tf_keras_environment, python_of
from benchmarks.heat import Row, run_heat
from benchmarks.processes import ContenderError, Measurement
from tfscale.console.screen import Progress

_TIMEOUT_S = 120.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    options = _parse(arguments)
    rows: list[Row] = []
    measured: list[tuple[str, dict[str, list[Measurement]]]] = []
    failures = []
    plan = _plan(options)
    with Progress(len(plan)) as progress:
        for heat, model in plan:
            name = f"({heat.group}) {heat.title}, {model}"
            progress.begin(name)
            try:
                new_rows, blocks = run_heat(
                    heat,
                    model,
                    num_rounds=options.rounds,
                    block_s=options.block_seconds,
                    timeout_s=_TIMEOUT_S,
                    python_of=python_of,
                )
            except ContenderError as error:
                failures.append(f"{name}: {error}")
                progress.tell(failures[-1])
                continue
            rows += new_rows
            measured.append((name, blocks))
            # At once: a run that is interrupted keeps what it has.
            table.append(new_rows, measured[-1:], _facts(options, measured), options.results)
            for row in new_rows:
                progress.tell(f"         {row.ratio:.3f} of {row.against}")
    print(table.render(rows, _facts(options, measured)))
    return int(bool(failures) or any(row.passed is False for row in rows))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", choices=GROUPS, help="one group of heats")
    parser.add_argument("--model", choices=(*MODELS, SMALL_MODEL), help="one model")
    parser.add_argument("--rounds", type=_positive_int, default=7, help="turns of each contender")
    parser.add_argument("--block-seconds", type=float, default=1.5, help="seconds of a turn, about")
    parser.add_argument("--results", type=Path, default=table.RESULTS, help="JSON lines are added")
    parser.add_argument("--no-tf-keras", action="store_true", help="leave tf_keras out")
    parser.add_argument("--no-jax", action="store_true", help="leave Keras on JAX out")
    parser.add_argument("--quick", action="store_true", help="one pair, two short rounds")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.block_seconds = 2, 0.2
    return options


def _positive_int(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, received {text}")
    return value


def _plan(options: argparse.Namespace) -> list[tuple[Heat, str]]:
    if options.quick:
        return [(quick_heat(), "mlp")]
    groups = [options.only] if options.only else GROUPS
    tf_keras = "c" in groups and not options.no_tf_keras and _tf_keras_is_there()
    torch = "c" in groups and _torch_is_there()
    jax = "b" in groups and not options.no_jax and _jax_is_there()
    return [
        (heat, model)
        for group in groups
        for heat in heats(group, tf_keras=tf_keras, torch=torch, jax=jax)
        for model in models_of(group)
        if options.model in (None, model)
    ]


def _torch_is_there() -> bool:
    if importlib.util.find_spec("torch") is None:
        _tell("PyTorch is left out: it is not installed. `make bench-torch` installs the CPU build (200 MB).")
        return False
    return True


def _jax_is_there() -> bool:
    _tell("Keras on JAX: in .venv-jax, installed on first use (700 MB)")
    obstacle = make_jax_environment(importlib.metadata.version("keras"))
    if obstacle:
        _tell(f"Keras on JAX is left out: {obstacle}")
    return not obstacle


def _tf_keras_is_there() -> bool:
    _tell("tf_keras: in .venv-tf-keras, installed on first use")
    obstacle = make_tf_keras_environment(_tensorflow_version())
    if obstacle:
        _tell(f"tf_keras is left out: {obstacle}")
    return not obstacle


def _tell(text: str) -> None:
    """Progress; the table alone goes to the standard output."""
    print(text, file=sys.stderr, flush=True)


def _tensorflow_version() -> str:
    # Builds without GPU support have a name of their own.
    for name in ("tensorflow", "tensorflow_cpu"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    raise SystemExit("TensorFlow is not installed.")


def _facts(options: argparse.Namespace, measured: Sequence[tuple[str, dict[str, list[Measurement]]]]) -> dict[str, Any]:
    versions: dict[str, str] = {}
    for _, by_label in measured:
        for blocks in by_label.values():
            versions |= blocks[0].versions
    return {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="minutes"),
        **table.machine_facts(),
        "versions": versions,
        "optimizer": OPTIMIZER,
        "num_rounds": options.rounds,
        "block_s": options.block_seconds,
    }


if __name__ == "__main__":
    sys.exit(main())

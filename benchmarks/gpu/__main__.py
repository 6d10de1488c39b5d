"""Trains ResNet-50 and a GPT of 100 million parameters on every visible GPU, beside Keras, tf.distribute and PyTorch.

Prints one table and writes JSON. Without a GPU it says so, and measures nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.environments import python_with_torch
from benchmarks.gpu.plan import CONTENDERS, MODELS, POLICIES, TORCH, Row, find_peak, render
from benchmarks.processes import ContenderError, Worker, plain_environment
from tfscale.cluster.nvml import Driver, ask_driver, list_gpus
from tfscale.cluster.own_gpus import VISIBLE
from tfscale.console.screen import Progress
from tfscale.launch.gpus import find_gpus

RESULTS = Path(__file__).resolve().parent.parent / "results" / "gpu.json"
_EPOCHS = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    options = _parse(arguments)
    gpus = () if options.devices == "cpu" else find_gpus(os.environ, list_gpus)
    if options.devices == "gpu" and not gpus:
        print(f"benchmarks.gpu is left out: no GPU. The driver lists none, or {VISIBLE} hides them.")
        return 0
    facts: dict[str, Any] = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="minutes"),
        **device_facts(ask_driver() if gpus else Driver(), len(gpus) or options.cpus),
        "policy": options.policy or POLICIES[options.size],
        "size": options.size,
        "versions": {},
        "left_out": {},
    }
    pythons = dict.fromkeys(CONTENDERS, Path(sys.executable))
    torch, obstacle = (options.torch_python, "") if options.torch_python else python_with_torch(has_gpus=bool(gpus))
    if torch is None:
        facts["left_out"][TORCH] = obstacle
        del pythons[TORCH]
    else:
        pythons[TORCH] = torch
    rows: list[Row] = []
    for model in [options.model] if options.model else MODELS:
        rows += measure(model, facts, pythons, bool(gpus), options)
        # Whatever ends a later one, this one's figures are there.
        _write(options.json, facts, rows)
    print(render(rows, facts))
    return 0


def _write(path: Path, facts: dict[str, Any], rows: Sequence[Row]) -> None:
    peak = find_peak(facts["device"], facts["policy"])
    found = [{**dataclasses.asdict(row), "items_per_s": row.items_per_s, "mfu": row.utilisation(peak)} for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**facts, "rows": found}, indent=1) + "\n")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--devices", choices=("gpu", "cpu"), default="gpu", help="cpu: logical CPUs, to try it out")
    parser.add_argument("--cpus", type=int, default=2, help="how many logical CPUs")
    parser.add_argument("--size", choices=tuple(POLICIES), default="full")
    parser.add_argument("--policy", choices=("float32", "mixed_float16", "mixed_bfloat16"), help="precision")
    parser.add_argument("--model", choices=MODELS, help="one model")
    parser.add_argument("--torch-python", type=Path, metavar="PYTHON", help="an interpreter that has PyTorch")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contender")
    parser.add_argument("--steps", type=int, default=20, help="steps of a turn")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for each answer of a contender")
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the figures go")
    options = parser.parse_args(arguments)
    if options.torch_python is not None and not options.torch_python.is_file():
        parser.error(f"--torch-python must be an interpreter, as venv/bin/python. Received: {options.torch_python}")
    return options


def device_facts(driver: Driver, count: int) -> dict[str, Any]:
    """Returns what a reader must know of the devices; without a driver they are CPUs.

    Args:
        driver: What it says of this host's GPUs.
        count: How many devices take part.
    """
    names = sorted({gpu.name for gpu in driver.gpus}) or ["CPU"]
    return {"device": " and ".join(names), "driver": driver.version or "none", "num_devices": count}


def measure(
    model: str, facts: dict[str, Any], pythons: dict[str, Path], on_gpus: bool, options: argparse.Namespace
) -> list[Row]:
    """Measures one model: a process for each contender, which take turns, every other round in reverse order.

    Args:
        model: Which of `MODELS`.
        facts: Get the versions; and PyTorch, where it does not start, among what is left out.
        pythons: The interpreter of each contender.
        on_gpus: Whether on GPUs.
        options: Of the command line.
    """
    environment = plain_environment()
    if on_gpus:
        # All contenders are there at a time: none may take the whole memory of a GPU.
        environment |= {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
        environment.pop(VISIBLE)
        environment |= {name: os.environ[name] for name in (VISIBLE,) if name in os.environ}
    said: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as processes:
        workers = {}
        for index, (contender, python) in enumerate(pythons.items()):
            module = "benchmarks.gpu.torch_child" if contender == TORCH else "benchmarks.gpu.child"
            worker = Worker(python, module, environment, Path(directory, f"{index}.log"))
            processes.callback(worker.kill)
            request = {"contender": contender, "model": model, "size": options.size, "policy": facts["policy"]}
            try:
                request |= {"num_cpus": 0 if on_gpus else options.cpus}
                said[contender] = _ask(worker, request, options.timeout)
            except ContenderError as error:
                if contender != TORCH:
                    raise
                facts["left_out"][TORCH] = f"it did not start ({str(error).strip().splitlines()[-1]})"
                continue
            workers[contender] = worker
        blocks = _take_turns(workers, options)
    for found in said.values():
        facts["versions"] |= found.pop("versions")
    # The model is the same.
    of_model = {"model": model, "flops_per_item": said[CONTENDERS[0]]["flops_per_item"]}
    return [
        Row(
            **{**said[contender], **of_model},
            contender=contender,
            step_s=tuple(block["seconds"] / options.steps / _EPOCHS for block in blocks[contender]),
            peak_bytes=blocks[contender][-1]["peak_bytes"],
            loss=blocks[contender][-1]["loss"],
        )
        for contender in workers
    ]


def _take_turns(workers: dict[str, Worker], options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    blocks: dict[str, list[dict[str, Any]]] = {contender: [] for contender in workers}
    with Progress(options.rounds * len(workers)) as progress:
        for index in range(options.rounds):
            for contender in workers if index % 2 == 0 else reversed(workers):
                progress.begin(f"{contender}, round {index + 1}")
                request = {"steps_per_epoch": options.steps, "epochs": _EPOCHS}
                blocks[contender].append(_ask(workers[contender], request, options.timeout))
    return blocks


def _ask(worker: Worker, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    worker.tell(request)
    try:
        return worker.answer(time.monotonic() + timeout_s)
    except ContenderError as error:
        raise ContenderError(f"{error}\n{worker.log()}") from error


if __name__ == "__main__":
    sys.exit(main())

"""The demo: one training script three ways, one table, one picture.

Plain Keras on one device, 4 logical replicas of one process, and 2 worker processes train the same network on
handwritten digits with the same global batch, and end with the same weights.

    python examples/demo.py             about a minute on two cores
    python examples/demo.py --smoke     fewer epochs

Exits with 1 when a way fails, or ends with other weights than plain Keras.
"""

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np

from tfscale import ClusterSpec

# The backend is chosen first: there may be no display.
matplotlib.use("Agg")
from matplotlib import pyplot as plt

SCRIPT = Path(__file__).resolve().parent / "digits_training.py"
# Float32 rounding leaves about 2e-6. Batch statistics of each replica's own rows, one fault among many, leave 4e-2.
TOLERANCE = 1e-4
DEADLINE_S = 240.0
_POLL_INTERVAL_S = 0.05
_SHOWN_CHARACTERS = 3000


@dataclass(frozen=True)
class Way:
    """One way to run the training script."""

    name: str
    flags: tuple[str, ...]
    num_workers: int
    line: str
    """How its learning curves are drawn, in matplotlib's words."""


WAYS = (
    Way("plain Keras, one device", ("--plain",), 1, "-"),
    Way("tfscale, 4 replicas of one process", ("--replicas", "4"), 1, "--"),
    Way("tfscale, 2 worker processes", (), 2, ":"),
)


@dataclass(frozen=True)
class Result:
    """What a run leaves behind."""

    history: dict[str, np.ndarray]
    """One value per epoch under each of Keras's log names, and `examples_per_s`."""
    weights: dict[str, np.ndarray]

    @property
    def examples_per_s(self) -> float:
        # The first epoch traces and compiles.
        return float(np.median(self.history["examples_per_s"][1:]))

    def weight_difference(self, reference: "Result") -> float:
        """Largest relative difference of any weight array: max|a - b| / max|b|."""
        differences = [
            np.max(np.abs(self.weights[path] - array)) / np.max(np.abs(array))
            for path, array in reference.weights.items()
        ]
        # numpy's maximum, because Python's may pass over NaN.
        return float(np.max(differences))


class WayError(Exception):
    """A process of a way failed, or did not finish in time."""


def run(way: Way, *, epochs: int) -> Result:
    """Runs one way in processes of its own, because TensorFlow keeps one set of devices per process."""
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory)
        command = [sys.executable, str(SCRIPT), *way.flags, "--epochs", str(epochs)]
        with contextlib.ExitStack() as running:
            processes = [
                running.enter_context(_started([*command, "--output", directory], environment, log))
                for environment, log in zip(_environments(way.num_workers), _logs(way, output), strict=True)
            ]
            _wait(way, processes, _logs(way, output))
        return Result(_read(output / "history.npz"), _read(output / "weights.npz"))


def _environments(num_workers: int) -> list[dict[str, str]]:
    """Each worker's environment: on the CPU, so that all ways compute with the same device."""
    inherited = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    common = {**inherited, "CUDA_VISIBLE_DEVICES": "-1", "KERAS_BACKEND": "tensorflow"}
    if num_workers == 1:
        return [common]
    addresses = tuple(f"127.0.0.1:{port}" for port in _free_ports(num_workers))
    specs = [ClusterSpec(addresses, rank) for rank in range(num_workers)]
    return [{**common, "TF_CONFIG": spec.to_tf_config()} for spec in specs]


def _free_ports(num_ports: int) -> list[int]:
    # All are held until the last is found, so that they differ.
    with contextlib.ExitStack() as sockets:
        held = [sockets.enter_context(socket.socket()) for _ in range(num_ports)]
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]


def _logs(way: Way, output: Path) -> list[Path]:
    return [output / f"worker_{rank}.log" for rank in range(way.num_workers)]


@contextlib.contextmanager
def _started(command: Sequence[str], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen]:
    with log.open("wb") as stream:
        process = subprocess.Popen(command, env=environment, stdout=stream, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        # SIGKILL, because a TensorFlow worker that waits for its peer ignores SIGTERM.
        process.kill()
        process.wait()


def _wait(way: Way, processes: Sequence[subprocess.Popen], logs: Sequence[Path]) -> None:
    """Waits until all have succeeded; the first failure, and the deadline, end the wait for all."""
    deadline_s = time.monotonic() + DEADLINE_S
    while any(process.poll() is None for process in processes):
        if any(process.poll() for process in processes) or time.monotonic() > deadline_s:
            break
        time.sleep(_POLL_INTERVAL_S)
    states = [process.poll() for process in processes]
    for rank, state in enumerate(states):
        if state or (state is None and not any(states)):
            what = f"did not finish within {DEADLINE_S:g} s" if state is None else f"ended with exit status {state}"
            shown = logs[rank].read_text(errors="replace")[-_SHOWN_CHARACTERS:]
            raise WayError(f"{way.name}: process {rank} of {len(processes)} {what}. Its output ends with:\n{shown}")


def _read(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as arrays:
        return dict(arrays)


def table(results: Sequence[Result]) -> str:
    """One row per way, aligned; test loss and accuracy are those after the last epoch."""
    head = ("", "test loss", "test accuracy", "largest weight difference", "examples/s")
    rows = [head] + [
        (
            way.name,
            f"{result.history['val_loss'][-1]:.4f}",
            f"{result.history['val_accuracy'][-1]:.4f}",
            f"{result.weight_difference(results[0]):.1e}" if result is not results[0] else "-",
            f"{result.examples_per_s:,.0f}",
        )
        for way, result in zip(WAYS, results, strict=True)
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def draw(results: Sequence[Result], path: Path) -> None:
    """Draws the learning curves; the lines get thinner and more broken, so that each shows what it covers."""
    figure, (loss, accuracy) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    panels = ((loss, "loss", "training loss"), (accuracy, "val_accuracy", "test accuracy"))
    for axes, quantity, label in panels:
        for rank, (way, result) in enumerate(zip(WAYS, results, strict=True)):
            values = result.history[quantity]
            axes.plot(range(1, len(values) + 1), values, way.line, linewidth=(8, 4.5, 2)[rank], label=way.name)
        axes.set(xlabel="epoch", ylabel=label)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
    loss.set_yscale("log")
    accuracy.legend(loc="lower right", handlelength=4)
    figure.suptitle("Handwritten digits, three ways, one result: the curves lie on top of each other")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Train handwritten digits three ways, with one result.")
    parser.add_argument("--smoke", action="store_true", help="2 epochs instead of 10")
    parser.add_argument("--output", type=Path, default=Path("demo_output"), help="directory of the picture")
    arguments = parser.parse_args(argv)

    results = []
    for way in WAYS:
        print(f"{way.name} ...", end="", flush=True)
        start_s = time.monotonic()
        try:
            results.append(run(way, epochs=2 if arguments.smoke else 10))
        except WayError as error:
            print(f" failed\n{error}", file=sys.stderr)
            return 1
        print(f" {time.monotonic() - start_s:.0f} s")

    picture = arguments.output / "learning_curves.png"
    draw(results, picture)
    print(f"\n{table(results)}\n")
    print(f"Largest weight difference: max|a - b| / max|b| of any weight array, b from {WAYS[0].name}.")
    print(f"All share this machine's {os.cpu_count()} cores: examples/s shows what the replicas cost here, not a gain.")
    print(f"Learning curves: {picture}")
    difference = float(np.max([result.weight_difference(results[0]) for result in results]))
    # NaN is not within the tolerance either.
    if not difference <= TOLERANCE:
        print(f"The weights differ by {difference:.1e}; rounding explains {TOLERANCE:g} at most.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    # As an exception, which ends the processes of the way that is running; by default it would leave them.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    sys.exit(main())

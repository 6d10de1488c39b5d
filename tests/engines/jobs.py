"""What every engine here trains: a small net, with notes of who it was and which steps it made.

python -m tests.engines.jobs OUT [--recovery] [--epochs 3] [--step-s 0.1]
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import signal
import socket
import sys
import time
from typing import Any

import numpy as np

EXAMPLES, BATCH, STEPS = 160, 16, 10
CLOSE = 1e-5
"""The largest relative difference of arrays that are equal to float rounding."""


def train(
    out: str,
    *,
    directory: str | None = None,
    epochs: int = 3,
    every_steps: int = 5,
    step_s: float = 0.0,
    extra: Any = (),
) -> None:
    """Trains, and has the chief leave `result.npz` in `out`; each worker leaves notes in `notes-RANK.jsonl`.

    Args:
        out: Where results are put.
        directory: Of `Recovery`; None for none.
        epochs: Of 10 steps each.
        every_steps: Between two saves.
        step_s: What each step takes longer, for others to do something in it.
        extra: More callbacks.
    """
    import keras

    import tfscale

    folder = pathlib.Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1)
    notes = folder / f"notes-{dp.rank}.jsonl"
    note(notes, "begins", workers=dp.num_replicas, pid=os.getpid(), host=socket.gethostname())
    with dp.scope():
        model = dp.prepare(
            keras.Sequential(
                [
                    keras.Input((8,)),
                    keras.layers.Dense(16, "tanh", kernel_initializer=keras.initializers.GlorotUniform(3)),
                    keras.layers.BatchNormalization(),
                    keras.layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(4)),
                ]
            )
        )
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")

    class Steps(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            del batch, logs
            note(notes, "step", step=int(model.optimizer.iterations.numpy()))
            time.sleep(step_s)

    # First, so that what waits in others is noted before.
    callbacks = [Steps(), *extra]
    if directory is not None:
        callbacks.append(tfscale.callbacks.Recovery(directory, every_steps=every_steps))
    x = np.random.default_rng(0).normal(size=(EXAMPLES, 8)).astype("float32")
    data = dp.dataset((x, np.sin(x.sum(1, keepdims=True))), shuffle=True)
    try:
        history = model.fit(data, epochs=epochs, verbose=0, callbacks=callbacks).history
    except tfscale.ClusterError as error:
        note(notes, "ends", error=str(error))
        raise
    if dp.is_chief:
        np.savez(folder / "result.npz", *[weight.numpy() for weight in model.weights], loss=history["loss"])
    note(notes, "done", workers=dp.num_replicas)


def note(path: pathlib.Path, what: str, **more: Any) -> None:
    """Adds a line to what a worker has to say."""
    with path.open("a") as file:
        file.write(json.dumps({"what": what, "time_s": time.time(), **more}) + "\n")


def read_notes(out: str | pathlib.Path, what: str | None = None) -> list[dict[str, Any]]:
    """Returns what all workers have noted, in the order of time; only notes of one kind where that is given."""
    found = []
    for path in pathlib.Path(out).glob("notes-*.jsonl"):
        # The last line may be half there.
        lines = path.read_text().splitlines(keepends=True)
        rank = int(path.stem.rpartition("-")[2])
        found += [{"rank": rank, **json.loads(line)} for line in lines if line.endswith("\n")]
    return sorted((each for each in found if what in (None, each["what"])), key=lambda each: each["time_s"])


def tell(folder: str, name: str, value: Any) -> None:
    """Leaves what a test is to judge."""
    path = pathlib.Path(folder) / "told.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps({name: value}, default=str) + "\n")


def told(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns what was left."""
    path = pathlib.Path(folder) / "told.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return {name: value for line in lines for name, value in json.loads(line).items()}


def difference(one: str | pathlib.Path, other: str | pathlib.Path) -> float:
    """Returns the largest relative difference of the arrays of two results."""
    first, second = (np.load(pathlib.Path(out) / "result.npz") for out in (one, other))
    return max(float(np.abs(first[key] - second[key]).max() / np.abs(second[key]).max()) for key in second.files)


def once(out: str, name: str) -> bool:
    """Whether this is the first time, in whatever process."""
    path = pathlib.Path(out) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def kill_at(out: str, rank: int, step: int) -> Any:
    """Returns a callback that kills the worker of this rank at this step, the first time."""
    import keras

    class Kill(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            del batch, logs
            own = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
            if own == rank and int(self.model.optimizer.iterations.numpy()) == step and once(out, "killed"):
                note(pathlib.Path(out) / f"notes-{own}.jsonl", "killed")
                os.kill(os.getpid(), signal.SIGKILL)

    return Kill()


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--recovery", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--every-steps", type=int, default=5)
    parser.add_argument("--step-s", type=float, default=0.0)
    given = parser.parse_args(argv)
    directory = f"{given.out}/recovery" if given.recovery else None
    train(given.out, directory=directory, epochs=given.epochs, every_steps=given.every_steps, step_s=given.step_s)


if __name__ == "__main__":
    main(sys.argv[1:])

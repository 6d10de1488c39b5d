"""One worker of a digits run whose plug is pulled at given steps; to be started by `tfscale launch`.

Beside the loss it logs `not_once`: how many examples were not seen exactly once in the epoch. It counts them with a
metric, so that what it says holds for the state that training went on with, and for no other.

    tfscale launch --workers 2 --max-restarts 2 benchmarks/recovery/worker.py --output DIR --pull 7:0 --pull 20:1
"""

import argparse
import json
import os
import random
import signal
import threading
import time
from pathlib import Path

# Before the imports below: what they take is a part of every restart.
STARTED_S = time.time()

import keras  # noqa: E402
import numpy as np  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402

import tfscale  # noqa: E402

IMPORTED_S = time.time()

GLOBAL_BATCH = 130
NUM_EXAMPLES = 1437


class NotOnce(keras.metrics.Metric):
    """Counts the examples that were not seen exactly once since the last reset; labels are the examples' numbers."""

    def __init__(self, num_examples, name="not_once"):
        super().__init__(name=name)
        self.num_examples = num_examples
        self.counts = self.add_variable((num_examples,), "zeros", name="counts")

    def update_state(self, y_true, y_pred, sample_weight=None):
        numbers = keras.ops.reshape(keras.ops.cast(y_true, "int32"), (-1,))
        self.counts.assign_add(keras.ops.sum(keras.ops.one_hot(numbers, self.num_examples), axis=0))

    def result(self):
        return keras.ops.sum(keras.ops.cast(self.counts != 1, "float32"))


class Plug(keras.callbacks.Callback):
    """Pulls the plug of this worker at given steps, each once in all attempts, and notes when.

    Args:
        pulls: `step:rank` or `step:rank:signal name`.
        rank: Of this worker.
        directory: Where it notes what happened.
        jitter_s: A SIGKILL comes up to so much later, in the middle of whatever is going on.
    """

    def __init__(self, pulls, rank, directory, jitter_s=0.0):
        super().__init__()
        self._pulls = [_parse(pull) for pull in pulls]
        self._rank = rank
        self._directory = directory
        self._jitter_s = jitter_s
        self._has_begun = False
        self._next = 0

    def on_train_begin(self, logs=None):
        self._note("started", time_s=STARTED_S)
        self._note("imported", time_s=IMPORTED_S)
        self._note("began")
        # One plug at a time: the next one of this attempt, if there is one.
        self._next = sum((self._directory / f"pulled-{index}").exists() for index in range(len(self._pulls)))

    def on_train_batch_begin(self, batch, logs=None):
        step = int(self.model.optimizer.iterations.numpy())
        if not self._has_begun:
            self._note("restored", step=step)
        if self._next < len(self._pulls):
            at, rank, number = self._pulls[self._next]
            if rank == self._rank and step >= at:
                (self._directory / f"pulled-{self._next}").touch()
                self._next = len(self._pulls)
                self._note("pulled", step=step)
                self._pull(number)

    def on_train_batch_end(self, batch, logs=None):
        if not self._has_begun:
            self._has_begun = True
            self._note("stepped", step=int(self.model.optimizer.iterations.numpy()))

    def _pull(self, number):
        if number == signal.SIGKILL:
            # At any moment of a step or of a save.
            delay_s = random.SystemRandom().uniform(0, self._jitter_s)
            threading.Timer(delay_s, os.kill, (os.getpid(), number)).start()
        else:
            os.kill(os.getpid(), number)

    def _note(self, what, step=None, time_s=None):
        note = {"what": what, "step": step, "rank": self._rank, "time_s": time_s or time.time()}
        with (self._directory / f"events-{self._rank}.jsonl").open("a") as file:
            file.write(json.dumps(note) + "\n")


def _parse(pull):
    step, rank, *name = pull.split(":")
    return int(step), int(rank), signal.Signals[name[0]] if name else signal.SIGKILL


def build_model():
    pixels, number = keras.Input((64,), name="pixels"), keras.Input((1,), name="number")
    hidden = keras.layers.Dense(32, activation="gelu")(pixels)
    hidden = keras.layers.BatchNormalization(momentum=0.9)(hidden)
    digit = keras.layers.Dense(10, name="digit")(hidden)
    seen = keras.layers.Identity(name="number_out")(number)
    return keras.Model({"pixels": pixels, "number": number}, {"digit": digit, "number_out": seen})


def make_data(dp):
    pixels, digits = load_digits(return_X_y=True)
    numbers = np.arange(NUM_EXAMPLES, dtype="float32")[:, None]
    x = {"pixels": (pixels[:NUM_EXAMPLES] / 16).astype("float32"), "number": numbers}
    return dp.dataset((x, {"digit": digits[:NUM_EXAMPLES], "number_out": numbers}), shuffle=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--pull", action="append", default=[], metavar="STEP:RANK[:SIGNAL]")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--every-steps", type=int, default=3)
    parser.add_argument("--jitter-s", type=float, default=0.0)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)

    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH, seed=1)
    with dp.scope():
        model = dp.prepare(build_model())
        model.compile(
            keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.05, 100), momentum=0.9),
            {"digit": keras.losses.SparseCategoricalCrossentropy(from_logits=True)},
            metrics={"digit": "accuracy", "number_out": NotOnce(NUM_EXAMPLES)},
        )
    recovery = tfscale.callbacks.Recovery(arguments.output / "recovery", every_steps=arguments.every_steps)
    callbacks = [recovery, Plug(arguments.pull, dp.rank, arguments.output, arguments.jitter_s)]
    history = model.fit(make_data(dp), epochs=arguments.epochs, verbose=0, callbacks=callbacks)
    if dp.is_chief:
        (arguments.output / "history.json").write_text(json.dumps(history.history))
        np.savez(arguments.output / "weights.npz", **{str(i): each.numpy() for i, each in enumerate(model.variables)})
    print("complete", flush=True)


if __name__ == "__main__":
    main()

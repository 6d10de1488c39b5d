"""One worker of a job that something befalls. Every function runs in a process of its own.

The model counts: weight i of `seen` is how often example i was trained on. `learned` depends on the batches' order.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

import tfscale
from tests.chaos.data import make_arguments
from tests.chaos.schedule import BATCH, DATA, EPOCHS, EXAMPLES, SAME, Fault

# 44 rows of it are 180 KB, a state of which is larger than what a full disk takes; a worker's own notes are smaller.
WIDTH, ROOM_BYTES = 1_000, 60_000
SECRET = "a secret of this very job"
# For faults to come in the midst of something.
_STEP_S = 0.05
_REPLY_S = 60.0


def train(directory: str, data: str, attempt: int, faults: tuple[Fault, ...]) -> dict[str, Any]:
    """Trains in `directory` while `faults` come, as far as this worker itself has a part in them."""
    _tell_log()
    os.environ.update(TFSCALE_SECRET=SECRET, TFSCALE_TIMEOUT_S="40")
    dp = data_parallel(data)
    own = [(index, fault) for index, fault in enumerate(faults) if fault.rank == dp.rank and fault.step is not None]
    befalls = _Befalls(Path(directory), f"{attempt}", own)
    # Every start has other numbers, that all its workers share.
    return fit(dp, data, attempt, str(Path(directory, "run")), [befalls])


def data_parallel(data: str) -> tfscale.DataParallel:
    """The replicas; with a seed, a `shuffle` without one would have the same order in every process.

    Arrays that Keras shuffles need it: without one each of several workers would draw an order of its own.
    """
    has_seed = DATA[data] == SAME or data == "arrays, shuffled"
    return tfscale.DataParallel(global_batch=BATCH, seed=1 if has_seed else None)


def fit(dp: tfscale.DataParallel, data: str, start: int, directory: str | None, callbacks: Any = ()) -> dict[str, Any]:
    """Trains; returns what the run ends with."""
    model = build(dp)
    recovery = [] if directory is None else [tfscale.callbacks.Recovery(directory, every_steps=1)]
    arguments = make_arguments(dp, data, start)
    history = model.fit(**arguments, epochs=EPOCHS, verbose=0, callbacks=[*recovery, *callbacks])
    seen, learned = (np.array(model.get_layer(name).kernel) for name in ("seen", "learned"))
    logs = {name: [float(each) for each in values] for name, values in history.history.items()}
    return {"seen": seen[:, 0].tolist(), "learned": learned.ravel().tolist(), "history": logs, "epochs": history.epoch}


def build(dp: tfscale.DataParallel) -> keras.Model:
    """The model, with the same weights in every process."""
    with dp.scope():
        number, noise = keras.Input((EXAMPLES,), name="number"), keras.Input((1,), name="noise")
        zeros, drawn = "zeros", keras.initializers.RandomNormal(0.05, seed=1)
        seen = keras.layers.Dense(1, use_bias=False, kernel_initializer=zeros, name="seen")(number)
        wide = keras.layers.Dense(WIDTH, kernel_initializer=drawn, trainable=False, activation="tanh")(number)
        hidden = keras.layers.Concatenate()([wide, noise])
        learned = keras.layers.Dense(1, kernel_initializer=drawn, name="learned")(hidden)
        model = dp.prepare(keras.Model({"number": number, "noise": noise}, {"seen": seen, "learned": learned}))
        losses = {
            "seen": keras.losses.MeanAbsoluteError(reduction="sum"),
            "learned": keras.losses.MeanSquaredError(reduction="sum"),
        }
        # With a rate of 1 an example that is seen adds 1 to its weight.
        model.compile(keras.optimizers.SGD(1.0), losses, loss_weights={"seen": 1.0, "learned": 0.01})
    return model


def reference(data: str) -> dict[str, Any]:
    """What a run ends with that nothing befalls."""
    os.environ["TFSCALE_SECRET"] = SECRET
    return fit(data_parallel(data), data, 0, None)


def second_run(directory: str, data: str) -> str:
    """What is said of a second run in a directory that another one uses; nothing where it is not refused."""
    try:
        fit(data_parallel(data), data, 0, str(Path(directory, "run")))
    except tfscale.RecoveryError as error:
        return str(error)
    return ""


class _Befalls(keras.callbacks.Callback):
    """Lets faults come at their steps, or says that it is time, each once in an attempt."""

    def __init__(self, directory: Path, attempt: str, faults: list[tuple[int, Fault]]):
        super().__init__()
        self._directory, self._attempt = directory, attempt
        self._waiting = faults

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        del logs
        time.sleep(_STEP_S)
        step = int(self.model.optimizer.iterations.numpy())
        due = [(index, fault) for index, fault in self._waiting if fault.step is not None and step >= fault.step]
        for index, fault in due:
            self._waiting.remove((index, fault))
            note = self._directory / f"due-{self._attempt}-{index}"
            note.touch()
            _befall(fault, note)


def _befall(fault: Fault, note: Path) -> None:
    """What a worker does itself; the rest is done by who sees the note."""
    if fault.kind == "sys.exit":
        sys.exit(0)
    elif fault.kind == "disk full":
        # As much as a process may write into a file. The system says so as it does of a disk: the write fails.
        resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM_BYTES, resource.RLIM_INFINITY))
    elif fault.kind == "second run":
        _wait_for(note.with_suffix(".done"))
    elif fault.kind == "connections closed":
        threading.Timer(fault.delay_s, _close_connections).start()
    elif fault.kind in _SIGNALS:
        threading.Timer(fault.delay_s, os.kill, (os.getpid(), _SIGNALS[fault.kind])).start()


_SIGNALS = {
    "one killed": signal.SIGKILL,
    "one stopped": signal.SIGSTOP,
    "paused": signal.SIGSTOP,
    "SIGTERM": signal.SIGTERM,
}


def _close_connections() -> None:
    """Ends every TCP connection of this process, as a link does that is lost for good."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as connection:
            is_tcp = connection.type == socket.SOCK_STREAM and connection.family in (socket.AF_INET, socket.AF_INET6)
            if is_tcp and connection.getpeername():
                connection.shutdown(socket.SHUT_RDWR)


def _wait_for(path: Path) -> None:
    deadline_s = time.monotonic() + _REPLY_S
    while not path.exists() and time.monotonic() < deadline_s:
        time.sleep(0.02)


def _tell_log() -> None:
    """Puts what the library logs where it is looked for."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("tfscale %(levelname)s %(message)s"))
    logger = logging.getLogger("tfscale")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False

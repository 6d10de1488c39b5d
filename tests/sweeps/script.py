"""A user's script: what is to be made small."""

import os
import time

import tensorflow as tf


def objective(rate, width=1):
    return (rate - 0.3) ** 2 + width


def mixed(x, kind, trial):
    if kind == "raise":
        raise RuntimeError(f"no such kind as {x}")
    if kind == "die":
        os._exit(7)
    if kind == "nan":
        return float("nan")
    if kind == "wait":
        time.sleep(600)
    trial.report(1, x)
    return tf.constant(x) * 2


def reporting(x, trial):
    for step in range(3):
        trial.report(step, x)
    return x


def together(x, trial):
    """The first two trials wait for each other: they are of two processes that run at once."""
    folder, own = os.environ["MARKS"], f"{trial.number}-{os.getpid()}"
    open(os.path.join(folder, own), "w").close()
    while trial.number < 2 and len(os.listdir(folder)) < 2:
        time.sleep(0.05)
    return x


def once_stuck(x, trial):
    """The first call of all never ends."""
    try:
        os.close(os.open(os.environ["MARKS"] + "/begun", os.O_CREAT | os.O_EXCL))
        time.sleep(600)
    except FileExistsError:
        pass
    return x


def talking(x):
    """Says on which cores it is, and begins a line that it does not end."""
    print(f"x={x:g} of", sorted(os.sched_getaffinity(0)))
    print("as bars do", end="")
    time.sleep(0.5)
    return x


def stuck(x):
    print("epoch", x)
    time.sleep(600)


def slow(x):
    time.sleep(0.2)
    return x

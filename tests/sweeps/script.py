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


def slow(x):
    time.sleep(0.2)
    return x

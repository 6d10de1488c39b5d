"""A user's training script that survives: one callback is all it takes.

    tfscale launch --workers 2 --max-restarts 3 examples/digits_recovery.py --output runs/digits

Kill a worker, or all of them, and start it again, with as many workers as you like: it goes on at the step it had
reached. `pull_the_plug.py` does that, and compares.
"""

import argparse
import logging
import os
import time
from pathlib import Path

import keras
import numpy as np
from digits_dataset import load_digits

import tfscale


class Progress(keras.callbacks.Callback):
    """Says where the chief is. It takes its time, or the digits would be learnt before anybody finds the plug."""

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch + 1

    def on_train_batch_end(self, batch, logs=None):
        print(f"epoch {self.epoch}, step {batch + 1:2d}: loss {logs['loss']:.6f}", flush=True)
        time.sleep(0.05)


def build_model():
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(32, 3, use_bias=False),
            layers.BatchNormalization(momentum=0.9),
            layers.Activation("gelu"),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )


def main():
    parser = argparse.ArgumentParser(description="Train digits, and survive.")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=4)
    arguments = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("tfscale.recovery").setLevel(logging.INFO)

    dp = tfscale.DataParallel(global_batch=130, seed=1)
    print(f"worker {dp.rank} is process {os.getpid()}", flush=True)
    with dp.scope():
        model = dp.prepare(build_model())
        model.compile(
            keras.optimizers.SGD(0.02, momentum=0.9),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    train_data = dp.dataset(load_digits("train"), shuffle=True, cache=True)
    test_data = dp.dataset(load_digits("test"))
    callbacks = [tfscale.callbacks.Recovery(arguments.output / "recovery", every_steps=5)]
    if dp.is_chief:
        callbacks.append(Progress())
    model.fit(train_data, epochs=arguments.epochs, validation_data=test_data, verbose=0, callbacks=callbacks)
    if dp.is_chief:
        history = model.history.history
        np.savez(arguments.output / "result.npz", *[weight.numpy() for weight in model.weights], **history)


if __name__ == "__main__":
    main()

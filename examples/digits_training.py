"""A user's training script: a convnet with BatchNormalization on handwritten digits.

`demo.py` runs it three ways. The data, the model, `compile` and `fit` are the same in all of them; with `--plain` the
model is made without a scope and is not prepared.

    python examples/digits_training.py --plain                plain Keras, one device
    python examples/digits_training.py --replicas 4           four logical CPUs stand in for four GPUs
    TF_CONFIG=... python examples/digits_training.py          one worker of several
"""

import argparse
import contextlib
import time
from pathlib import Path

import keras
import numpy as np
from digits_dataset import NUM_TRAIN, load_digits

import tfscale

SEED = 1
# Awkward on purpose: four replicas cannot share it evenly, nor the 70 examples that are left for the last
# of an epoch's 12 batches.
GLOBAL_BATCH = 130


def build_model() -> keras.Model:
    # Smooth on purpose. At a kink (of ReLU, or where max pooling meets a tie) a difference in the last bit becomes
    # a jump, and float32 runs that are equal but for rounding drift apart within an epoch.
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(32, 3, padding="same", use_bias=False),
            layers.BatchNormalization(momentum=0.9),
            layers.Activation("gelu"),
            layers.Conv2D(64, 3, padding="same", use_bias=False),
            layers.BatchNormalization(momentum=0.9),
            layers.Activation("gelu"),
            layers.AveragePooling2D(2),
            layers.Flatten(),
            layers.Dense(64, activation="gelu"),
            layers.Dense(10),
        ]
    )


def train(dp: tfscale.DataParallel, *, is_plain: bool, epochs: int) -> tuple[keras.Model, dict[str, list[float]]]:
    # As tf.data, because plain Keras takes nothing else; a prepared model finds what is behind it.
    train_data = dp.dataset(load_digits("train"), shuffle=True, cache=True).as_tf_data()
    test_data = dp.dataset(load_digits("test"), cache=True).as_tf_data()
    with contextlib.nullcontext() if is_plain else dp.scope():
        model = build_model() if is_plain else dp.prepare(build_model())
        model.compile(
            optimizer=keras.optimizers.SGD(0.02, momentum=0.9),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    history = model.fit(train_data, epochs=epochs, validation_data=test_data, callbacks=[Throughput()], verbose=0)
    return model, history.history


class Throughput(keras.callbacks.Callback):
    """Adds the examples per second of an epoch's training, evaluation excluded, to its logs."""

    def on_epoch_begin(self, epoch, logs=None):
        self._start_s = time.perf_counter()

    def on_test_begin(self, logs=None):
        self._examples_per_s = NUM_TRAIN / (time.perf_counter() - self._start_s)

    def on_epoch_end(self, epoch, logs=None):
        logs["examples_per_s"] = self._examples_per_s


def save(model: keras.Model, history: dict[str, list[float]], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    np.savez(directory / "history.npz", **history)
    weights = {weight.path: weight.numpy() for weight in model.weights}
    np.savez(directory / "weights.npz", **weights)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a convnet on handwritten digits.")
    parser.add_argument("--plain", action="store_true", help="plain Keras, without tfscale")
    parser.add_argument("--replicas", type=int, default=1, help="logical CPUs to make")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--output", type=Path, default=Path("demo_output"))
    arguments = parser.parse_args()

    if not arguments.plain:
        tfscale.simulate_replicas(arguments.replicas)
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH, devices=1 if arguments.plain else "auto", seed=SEED)
    model, history = train(dp, is_plain=arguments.plain, epochs=arguments.epochs)
    if dp.is_chief:
        save(model, history, arguments.output)


if __name__ == "__main__":
    main()

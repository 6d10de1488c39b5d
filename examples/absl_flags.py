"""Train handwritten digits from a script with absl flags.

    python examples/absl_flags.py --replicas=2 --global_batch=64 --epochs=4

`--replicas` counts GPUs where there are any, and logical CPUs otherwise.
"""

import keras
from absl import app, flags, logging
from digits_dataset import load_digits
from keras import layers

import tfscale

_REPLICAS = flags.DEFINE_integer("replicas", 2, "Devices to train on.", lower_bound=1)
_GLOBAL_BATCH = flags.DEFINE_integer("global_batch", 64, "Examples per step.", lower_bound=1)
_EPOCHS = flags.DEFINE_integer("epochs", 4, "Passes over the training data.", lower_bound=1)
_LEARNING_RATE = flags.DEFINE_float("learning_rate", 0.1, "SGD's learning rate.", lower_bound=0.0)


def build_model():
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dropout(0.2),
            layers.Dense(10, activation="softmax"),
        ]
    )


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"Unknown arguments: {argv[1:]}")
    tfscale.simulate_replicas(_REPLICAS.value)
    dp = tfscale.DataParallel(global_batch=_GLOBAL_BATCH.value, devices=_REPLICAS.value, seed=1)
    logging.info("%d replicas, global batch %d", dp.num_replicas, dp.global_batch)
    with dp.scope():
        model = dp.prepare(build_model())
        model.compile(
            optimizer=keras.optimizers.SGD(_LEARNING_RATE.value, momentum=0.9),
            loss="sparse_categorical_crossentropy",
            metrics=["accuracy"],
        )
    train_data = load_digits("train").cache().shuffle(1500).batch(dp.global_batch)
    model.fit(train_data, epochs=_EPOCHS.value, verbose=2)
    loss, accuracy = model.evaluate(load_digits("test").batch(dp.global_batch), verbose=0)
    print(f"{dp.num_replicas} replicas: test loss {loss:.4f}, test accuracy {accuracy:.4f}")


if __name__ == "__main__":
    app.run(main)

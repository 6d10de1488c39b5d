"""Train handwritten digits from a script with absl flags: on one device, on N replicas or on several workers.

    python examples/absl_flags.py --epochs=4
    python examples/absl_flags.py --simulate_replicas=4 --per_replica_batch=32 --examples_per_epoch=1500

`--simulate_replicas` makes logical CPUs where there are no GPUs. Several workers find each other through TF_CONFIG.
"""

import keras
from absl import app, flags, logging
from digits_dataset import load_digits
from keras import layers

import tfscale

tfscale.flags.define(global_batch=64, seed=1)
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
    dp = tfscale.flags.data_parallel()
    with dp.scope():
        model = dp.prepare(build_model())
        model.compile(
            optimizer=dp.optimizer(keras.optimizers.SGD(_LEARNING_RATE.value, momentum=0.9)),
            loss="sparse_categorical_crossentropy",
            metrics=["accuracy"],
        )
    logging.info("%s", dp)
    train_data = dp.dataset(load_digits("train"), shuffle=True, cache=True)
    model.fit(train_data, epochs=_EPOCHS.value, callbacks=dp.callbacks(), verbose=2 if dp.is_chief else 0)
    loss, accuracy = model.evaluate(dp.dataset(load_digits("test")), verbose=0)
    print(f"{dp.num_replicas} replicas: test loss {loss:.4f}, test accuracy {accuracy:.4f}")


if __name__ == "__main__":
    app.run(main)

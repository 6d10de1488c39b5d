"""Train a convnet on handwritten digits with `model.fit`, on every device of this machine.

    python examples/fit_digits.py

Without a GPU, four logical CPUs stand in for four.
"""

import keras
from digits_dataset import load_digits
from keras import layers

import tfscale


def build_model():
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.BatchNormalization(momentum=0.9),
            layers.Conv2D(64, 3, activation="relu"),
            layers.BatchNormalization(momentum=0.9),
            layers.Flatten(),
            layers.Dense(10, activation="softmax"),
        ]
    )


def main():
    tfscale.simulate_replicas(4)
    dp = tfscale.DataParallel(global_batch=100, seed=1)
    with dp.scope():
        model = dp.prepare(build_model())
        model.compile(
            optimizer=keras.optimizers.Adam(1e-3, global_clipnorm=1.0),
            loss="sparse_categorical_crossentropy",
            metrics=["accuracy"],
        )

    train_data = dp.dataset(load_digits("train"), shuffle=True, cache=True)
    test_data = dp.dataset(load_digits("test"))
    model.fit(train_data, epochs=5, validation_data=test_data, verbose=2)

    loss, accuracy = model.evaluate(test_data, verbose=0)
    print(f"{dp.num_replicas} replicas: test loss {loss:.4f}, test accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()

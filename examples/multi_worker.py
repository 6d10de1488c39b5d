r"""Train one model on several workers: `tfscale launch --workers 2 examples/multi_worker.py`.

By hand, once per worker, each with its own TF_CONFIG; on two machines, with their addresses in place of 127.0.0.1:

    TF_CONFIG='{"cluster": {"worker": ["127.0.0.1:2222", "127.0.0.1:2223"]},
        "task": {"type": "worker", "index": 0}}' python examples/multi_worker.py

    TF_CONFIG='{"cluster": {"worker": ["127.0.0.1:2222", "127.0.0.1:2223"]},
        "task": {"type": "worker", "index": 1}}' python examples/multi_worker.py

Without TF_CONFIG it is an ordinary training script.
"""

import argparse

import keras
from digits_dataset import load_digits
from keras import layers

import tfscale


def build_model():
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(32, 3, use_bias=False),
            layers.BatchNormalization(momentum=0.9),
            layers.ReLU(),
            layers.Flatten(),
            layers.Dense(10, activation="softmax"),
        ]
    )


def main():
    parser = argparse.ArgumentParser(description="Train digits on the workers of TF_CONFIG.")
    parser.add_argument("--save", metavar="FILE.keras", help="where the chief puts the model")
    arguments = parser.parse_args()

    dp = tfscale.DataParallel(global_batch=128, seed=1)
    with dp.scope():
        model = dp.prepare(build_model())
        model.compile("adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    # Each worker takes its own rows of the same global batches.
    train_data = dp.dataset(load_digits("train"), shuffle=True, cache=True)
    history = model.fit(train_data, epochs=4, verbose=2 if dp.is_chief else 0).history
    loss, accuracy = history["loss"][-1], history["accuracy"][-1]
    print(f"worker {dp.rank} of {dp.num_replicas}: loss {loss:.6f}, accuracy {accuracy:.4f}")
    if dp.is_chief and arguments.save:
        model.save(arguments.save)


if __name__ == "__main__":
    main()

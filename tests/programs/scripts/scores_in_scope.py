"""Federated averaging by hand: a model for each client; the global one is scored by a loss of its predictions."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
keras.utils.set_random_seed(5)


def build():
    model = keras.Sequential(
        [keras.Input((5,)), layers.Dense(8, activation="relu"), layers.Dense(3, activation="softmax")]
    )
    model.compile(loss="categorical_crossentropy", optimizer=keras.optimizers.SGD(0.05, momentum=0.9))
    return model


rng = np.random.default_rng(0)
clients = [(rng.normal(size=(n, 5)).astype("float32"), np.eye(3)[rng.integers(0, 3, n)]) for n in (16, 11, 9)]
x_test, y_test = rng.normal(size=(13, 5)).astype("float32"), np.eye(3)[rng.integers(0, 3, 13)]
global_model = build()
local_models = [build() for _ in clients]


@tf.function
def score(y_true, y_pred):
    return keras.losses.CategoricalCrossentropy()(y_true, y_pred)


def average(histories):
    weights = [local_model.get_weights() for local_model in local_models]
    shares = [len(x) / 36 for x, _ in clients]
    global_model.set_weights([sum(s * w for s, w in zip(shares, each)) for each in zip(*weights)])
    for local_model in local_models:
        local_model.set_weights(global_model.get_weights())
    return histories


losses = []
histories = [m.fit(x, y, batch_size=BATCH, shuffle=False) for m, (x, y) in zip(local_models, clients)]
average(histories)
predictions = global_model.predict(x_test)
at_once = float(keras.losses.CategoricalCrossentropy()(y_test, predictions))
summed = float(keras.losses.CategoricalCrossentropy(reduction="sum")(y_test, predictions))
in_graph = float(score(tf.constant(y_test, "float32"), tf.constant(predictions, "float32")))

"""tensorflow#39268: metrics that depend on the batch evaluate to something else under MirroredStrategy."""

import keras
import numpy as np
from keras import layers, ops

BATCH = 8
REPORTED = "tensorflow#39268"
keras.utils.set_random_seed(6)


def f1(y_true, y_pred):
    predicted = ops.round(y_pred)
    hits = ops.sum(y_true * predicted)
    precision = hits / (ops.sum(predicted) + 1e-7)
    recall = hits / (ops.sum(y_true) + 1e-7)
    return 2 * precision * recall / (precision + recall + 1e-7)


model = keras.Sequential([keras.Input((5,)), layers.Dense(8, "tanh"), layers.Dense(1, "sigmoid")])
model.compile(optimizer="adam", loss="binary_crossentropy", metrics=[f1, "accuracy"])
rng = np.random.default_rng(0)
x = rng.normal(size=(42, 5)).astype("float32")
y = (x[:, :1] > 0).astype("float32")
history = model.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False, validation_data=(x[:21], y[:21]))
loss, score, accuracy = model.evaluate(x, y, batch_size=BATCH)

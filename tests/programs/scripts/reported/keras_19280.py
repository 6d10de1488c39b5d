"""keras#19280: metrics are not reduced to their mean on several GPUs."""

import keras
import numpy as np
from keras import layers

BATCH = 8
REPORTED = "keras#19280"
keras.utils.set_random_seed(19280)

rng = np.random.default_rng(0)
x, y = rng.normal(size=(45, 6)).astype("float32"), rng.integers(0, 3, 45)
batch_logs = []
record = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: batch_logs.append(dict(logs)))
model = keras.Sequential([keras.Input((6,)), layers.Dense(3, activation="softmax")])
model.compile(
    optimizer="adam",
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(2, name="top")],
    weighted_metrics=[keras.metrics.SparseCategoricalCrossentropy(name="entropy")],
)
history = model.fit(x[:29], y[:29], batch_size=BATCH, epochs=2, shuffle=False, callbacks=[record])
results = model.evaluate(x[29:], y[29:], batch_size=BATCH, return_dict=True)

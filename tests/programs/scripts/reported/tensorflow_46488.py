"""tensorflow#46488: with BatchNormalization and several GPUs the saved model evaluates to something else."""

import os
import tempfile

import keras
import numpy as np
from keras import layers

BATCH = 8
REPORTED = "tensorflow#46488"
keras.utils.set_random_seed(46488)

path = os.path.join(tempfile.mkdtemp(), "model.keras")
rng = np.random.default_rng(0)
images, labels = rng.uniform(size=(29, 8, 8, 1)).astype("float32"), rng.integers(0, 10, 29)
model = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        layers.Conv2D(6, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.BatchNormalization(momentum=0.5),
        layers.Flatten(),
        layers.Dense(10),
    ]
)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(loss=loss, optimizer=keras.optimizers.SGD(0.05), metrics=["accuracy"])
history = model.fit(images, labels, batch_size=BATCH, epochs=3, shuffle=False)
results = model.evaluate(images, labels, batch_size=BATCH)
model.save(path)
restored = keras.models.load_model(path)
restored_results = restored.evaluate(images, labels, batch_size=BATCH)

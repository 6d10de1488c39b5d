"""Wide and deep on a table: lookups of strings, a normalization that is adapted, hashed crosses, a dict per row."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 12
WORKERS = True
keras.utils.set_random_seed(52)

rng = np.random.default_rng(0)
features = {
    "age": rng.integers(18, 80, 56).astype("float32"),
    "hours": rng.integers(10, 60, 56).astype("float32"),
    "job": rng.choice(["clerk", "nurse", "pilot", "smith"], 56),
    "city": rng.integers(0, 9, 56).astype("int64"),
}
labels = (features["age"] * 0.5 + features["hours"] > 60).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices((features, labels)).batch(BATCH)

job_lookup = layers.StringLookup(vocabulary=["clerk", "nurse", "pilot", "smith"])
encoded = dataset.map(lambda row, label: ({**row, "job": job_lookup(row["job"])}, label))
normalization = layers.Normalization(axis=None)
normalization.adapt(features["age"])

inputs = {
    "age": keras.Input((1,), name="age"),
    "hours": keras.Input((1,), name="hours"),
    "job": keras.Input((1,), name="job", dtype="int64"),
    "city": keras.Input((1,), name="city", dtype="int64"),
}
wide = layers.concatenate(
    [layers.CategoryEncoding(5, output_mode="one_hot")(inputs["job"]), layers.CategoryEncoding(9)(inputs["city"])]
)
deep = layers.concatenate(
    [
        normalization(inputs["age"]),
        layers.Rescaling(1 / 60)(inputs["hours"]),
        layers.Flatten()(layers.Embedding(5, 3)(inputs["job"])),
        layers.Flatten()(layers.Embedding(9, 3)(inputs["city"])),
    ]
)
deep = layers.BatchNormalization()(layers.Dense(8, activation="relu")(deep))
merged = layers.concatenate([layers.BatchNormalization()(wide), deep])
model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(merged))
model.compile(keras.optimizers.Ftrl(0.05), "binary_crossentropy", metrics=["accuracy", "auc"])
history = model.fit(encoded, epochs=2)
predictions = model.predict(encoded)

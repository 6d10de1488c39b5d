"""Text from scratch: a vectorization that is adapted in the data pipeline, a bag of embeddings, a saved model."""

import os
import tempfile

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 12
keras.utils.set_random_seed(63)

rng = np.random.default_rng(0)
good, bad = ["fine", "great", "lovely", "warm"], ["awful", "cold", "dull", "sad"]
labels = rng.integers(0, 2, 56)
texts = [" ".join(["the", "film", "was", *rng.choice(good if label else bad, 3)]) for label in labels]

vectorize_layer = layers.TextVectorization(max_tokens=20, output_sequence_length=6)
vectorize_layer.adapt(texts)
dataset = tf.data.Dataset.from_tensor_slices((texts, labels)).batch(BATCH)
dataset = dataset.map(lambda text, label: (vectorize_layer(text), label)).cache().prefetch(2)
train_ds, val_ds = dataset.take(4), dataset.skip(4)

inputs = keras.Input(shape=(None,), dtype="int64")
x = layers.Embedding(20, 6)(inputs)
x = layers.Dropout(0.0)(x)
x = layers.Conv1D(6, 3, padding="valid", activation="relu")(x)
x = layers.GlobalMaxPooling1D()(x)
model = keras.Model(inputs, layers.Dense(1, activation="sigmoid", name="predictions")(x))
model.compile(loss="binary_crossentropy", optimizer="adam", metrics=["accuracy"])
history = model.fit(train_ds, validation_data=val_ds, epochs=2)
path = os.path.join(tempfile.mkdtemp(), "model.keras")
model.save(path)
loaded = keras.models.load_model(path)
results = loaded.evaluate(val_ds, return_dict=True)
predictions = loaded.predict(val_ds)

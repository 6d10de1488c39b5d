"""keras#20329: dictionaries of inputs do not work under MultiWorkerMirroredStrategy."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
WORKERS = True
REPORTED = "keras#20329"
keras.utils.set_random_seed(20329)

rng = np.random.default_rng(0)
features = {
    "age": rng.normal(size=(28, 1)).astype("float32"),
    "words": rng.integers(0, 20, (28, 5)),
}
target = {"price": rng.normal(size=(28, 1)).astype("float32")}
dataset = tf.data.Dataset.from_tensor_slices((features, target)).batch(BATCH)

inputs = {"age": keras.Input((1,), name="age"), "words": keras.Input((5,), dtype="int32", name="words")}
words = layers.GlobalAveragePooling1D()(layers.Embedding(20, 4)(inputs["words"]))
price = layers.Dense(1, name="price")(layers.Concatenate()([inputs["age"], words]))
model = keras.Model(inputs, {"price": price})
model.compile(optimizer=keras.optimizers.Adam(0.05), loss={"price": "mse"}, metrics={"price": ["mae"]})
history = model.fit(dataset, epochs=3, validation_data=dataset.take(1))
predictions = model.predict(dataset)

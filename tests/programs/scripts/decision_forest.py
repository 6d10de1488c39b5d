"""A soft decision forest: trees of an own class route rows by products, on looked-up strings and bytes of pictures."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 8
WORKERS = True
keras.utils.set_random_seed(71)


class Tree(keras.Layer):
    """Every inner node sends a row to its left by a probability; the leaves hold distributions over the classes."""

    def __init__(self, depth, num_classes, columns):
        super().__init__()
        self.depth, self.columns = depth, columns
        self.gates = layers.Dense(2**depth, activation="sigmoid")
        self.leaves = self.add_weight(shape=(2**depth, num_classes), initializer="random_normal", name="leaves")

    def call(self, features):
        rows = ops.shape(features)[0]
        left = self.gates(ops.take(features, self.columns, axis=1))
        both = ops.stack([left, 1 - left], axis=2)
        reached = ops.ones((rows, 1, 1))
        for level in range(self.depth):
            reached = ops.reshape(reached, (rows, -1, 1)) * both[:, 2**level : 2 ** (level + 1), :]
        return ops.matmul(ops.reshape(reached, (rows, -1)), ops.softmax(self.leaves))


rng = np.random.default_rng(0)
age, job = keras.Input((1,), name="age"), keras.Input((1,), name="job", dtype="string")
picture = keras.Input((4, 4, 1), name="picture", dtype="uint8")
known = layers.StringLookup(vocabulary=["clerk", "nurse", "Zöllner", ""])(job)
seen = layers.Flatten()(layers.Conv2D(2, 3)(layers.Rescaling(1 / 255)(picture)))
features = layers.concatenate([age, layers.Flatten()(layers.Embedding(5, 3)(known)), seen])
features = layers.BatchNormalization()(features)
trees = [Tree(2, 3, rng.permutation(12)[:7]) for _ in range(3)]
model = keras.Model([age, job, picture], layers.average([tree(features) for tree in trees]))
model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", metrics=["accuracy"])
rows = {
    "age": rng.normal(size=(21, 1)).astype("float32"),
    "job": rng.choice(["clerk", "nurse", "Zöllner", "", "pilot"], (21, 1)),
    "picture": rng.integers(0, 256, (21, 4, 4, 1)).astype("uint8"),
}
dataset = tf.data.Dataset.from_tensor_slices((rows, rng.integers(0, 3, 21))).batch(BATCH)
history = model.fit(dataset, epochs=2, validation_data=dataset)

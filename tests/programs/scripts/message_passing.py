"""Message passing on molecules: each batch is one graph of all its atoms, so no part of it has a row per example."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 8
REFUSED = "DataError"
keras.utils.set_random_seed(80)


def merge(batch, y):
    atoms, bonds = batch
    num_atoms = atoms.row_lengths()
    molecule = tf.repeat(tf.range(tf.shape(num_atoms)[0]), num_atoms)
    first_atom = tf.repeat(tf.pad(tf.cumsum(num_atoms)[:-1], [(1, 0)]), bonds.row_lengths())
    return (atoms.merge_dims(0, 1), bonds.merge_dims(0, 1) + first_atom[:, None], molecule), y


class MessagePassing(layers.Layer):
    def build(self, shapes):
        self.kernel = self.add_weight(shape=(4, 4), name="kernel")

    def call(self, inputs):
        atoms, bonds = inputs
        messages = tf.gather(atoms, bonds[:, 1]) @ ops.convert_to_tensor(self.kernel)
        return atoms + tf.math.unsorted_segment_sum(messages, bonds[:, 0], tf.shape(atoms)[0])


class Readout(layers.Layer):
    def call(self, inputs):
        return tf.math.segment_mean(*inputs)


rng = np.random.default_rng(0)
sizes = rng.integers(2, 6, 27)
features = rng.normal(size=(sizes.sum(), 4)).astype("float32")
pairs = np.concatenate([rng.integers(0, size, (2 * size, 2)) for size in sizes])
molecules = (tf.RaggedTensor.from_row_lengths(features, sizes), tf.RaggedTensor.from_row_lengths(pairs, 2 * sizes))
labels = rng.integers(0, 2, (27, 1)).astype("float32")
data = tf.data.Dataset.from_tensor_slices((molecules, labels)).batch(BATCH).map(merge)

atoms, bonds = keras.Input((4,)), keras.Input((2,), dtype="int64")
molecule = keras.Input((), dtype="int32")
x = Readout()([MessagePassing()([atoms, bonds]), molecule])
model = keras.Model([atoms, bonds, molecule], layers.Dense(1, activation="sigmoid")(x))
model.compile("adam", "binary_crossentropy", metrics=[keras.metrics.AUC(name="auc")])
history = model.fit(data, epochs=2)

"""Metric learning: all anchors of a batch against all positives, compute_loss on labels made in the step."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 10
keras.utils.set_random_seed(21)


class EmbeddingModel(keras.Model):
    def train_step(self, data):
        anchors, positives = data["anchors"], data["positives"]
        with tf.GradientTape() as tape:
            anchor_embeddings = self(anchors, training=True)
            positive_embeddings = self(positives, training=True)
            similarities = ops.einsum("ae,pe->ap", anchor_embeddings, positive_embeddings) / 0.2
            sparse_labels = ops.arange(ops.shape(anchors)[0])
            loss = self.compute_loss(y=sparse_labels, y_pred=similarities)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(sparse_labels, similarities)
        return {m.name: m.result() for m in self.metrics}


inputs = layers.Input(shape=(8,))
x = layers.Dense(12, activation="tanh")(inputs)
embeddings = layers.UnitNormalization()(layers.Dense(4)(x))
model = EmbeddingModel(inputs, embeddings)
model.compile(
    optimizer=keras.optimizers.Adam(learning_rate=1e-2),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
rng = np.random.default_rng(0)
anchors = rng.normal(size=(26, 8)).astype("float32")
data = {"anchors": anchors, "positives": anchors + 0.1 * rng.normal(size=anchors.shape).astype("float32")}
history = model.fit(tf.data.Dataset.from_tensor_slices(data).batch(BATCH), epochs=2)

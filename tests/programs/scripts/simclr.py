"""SimCLR in a train_step: every row is compared with all others of the batch."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 8
keras.utils.set_random_seed(8)


class ContrastiveModel(keras.Model):
    def __init__(self, temperature=0.5):
        super().__init__()
        self.temperature = temperature
        self.encoder = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="tanh")], name="encoder")
        self.projection_head = keras.Sequential([keras.Input((8,)), layers.Dense(4)], name="projection_head")
        self.loss_tracker = keras.metrics.Mean(name="c_loss")

    @property
    def metrics(self):
        return [self.loss_tracker]

    def contrastive_loss(self, projections_1, projections_2):
        projections_1 = ops.normalize(projections_1, axis=1)
        projections_2 = ops.normalize(projections_2, axis=1)
        similarities = ops.matmul(projections_1, ops.transpose(projections_2)) / self.temperature
        labels = ops.arange(ops.shape(projections_1)[0])
        loss_1_2 = keras.losses.sparse_categorical_crossentropy(labels, similarities, from_logits=True)
        loss_2_1 = keras.losses.sparse_categorical_crossentropy(labels, ops.transpose(similarities), from_logits=True)
        return ops.mean(loss_1_2 + loss_2_1) / 2

    def train_step(self, data):
        view_1, view_2 = data
        with tf.GradientTape() as tape:
            projections_1 = self.projection_head(self.encoder(view_1, training=True), training=True)
            projections_2 = self.projection_head(self.encoder(view_2, training=True), training=True)
            loss = self.contrastive_loss(projections_1, projections_2)
        weights = self.encoder.trainable_weights + self.projection_head.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        self.loss_tracker.update_state(loss)
        return {m.name: m.result() for m in self.metrics}


rng = np.random.default_rng(0)
rows = rng.normal(size=(20, 6)).astype("float32")
views = rows + 0.1 * rng.normal(size=(20, 6)).astype("float32")
model = ContrastiveModel()
model.compile(optimizer=keras.optimizers.Adam(1e-2))
history = model.fit(rows, views, batch_size=BATCH, epochs=2, shuffle=False)

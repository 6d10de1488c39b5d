"""A siamese network on triples: the train_step gives the tape the vector of triplet losses, one for each row."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 8
keras.utils.set_random_seed(6)

embedding = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(4)], name="embedding")


class DistanceLayer(layers.Layer):
    def call(self, anchor, positive, negative):
        ap_distance = ops.sum(ops.square(anchor - positive), -1)
        an_distance = ops.sum(ops.square(anchor - negative), -1)
        return ap_distance, an_distance


anchor_input, positive_input, negative_input = (keras.Input((6,), name=n) for n in ("anchor", "positive", "negative"))
distances = DistanceLayer()(embedding(anchor_input), embedding(positive_input), embedding(negative_input))
siamese_network = keras.Model([anchor_input, positive_input, negative_input], distances)


class SiameseModel(keras.Model):
    def __init__(self, siamese_network, margin=0.5):
        super().__init__()
        self.siamese_network = siamese_network
        self.margin = margin
        self.loss_tracker = keras.metrics.Mean(name="loss")

    def call(self, inputs):
        return self.siamese_network(inputs)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self._compute_loss(data)
        gradients = tape.gradient(loss, self.siamese_network.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.siamese_network.trainable_weights))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}

    def test_step(self, data):
        self.loss_tracker.update_state(self._compute_loss(data))
        return {"loss": self.loss_tracker.result()}

    def _compute_loss(self, data):
        ap_distance, an_distance = self.siamese_network(data)
        return ops.maximum(ap_distance - an_distance + self.margin, 0.0)

    @property
    def metrics(self):
        return [self.loss_tracker]


anchors, positives, negatives = np.random.default_rng(0).normal(size=(3, 28, 6)).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices((anchors, positives, negatives))
siamese_model = SiameseModel(siamese_network)
siamese_model.compile(optimizer=keras.optimizers.SGD(0.01))
history = siamese_model.fit(dataset.take(20).batch(BATCH), epochs=2, validation_data=dataset.skip(20).batch(BATCH))

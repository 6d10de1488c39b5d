"""NNCLR: nearest neighbours out of a support set of earlier projections, in a variable."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 8
keras.utils.set_random_seed(7)
rng = np.random.default_rng(0)


class NNCLR(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential([keras.Input((6,)), layers.Dense(10, activation="relu"), layers.Dense(4)])
        self.queue = keras.Variable(
            keras.utils.normalize(np.random.default_rng(1).normal(size=(20, 4)), axis=1, order=2),
            dtype="float32",
            trainable=False,
        )
        self.accuracy = keras.metrics.SparseCategoricalAccuracy(name="c_acc")
        self.tracker = keras.metrics.Mean(name="c_loss")

    @property
    def metrics(self):
        return [self.accuracy, self.tracker]

    def nearest(self, projections):
        support = ops.matmul(projections, ops.transpose(self.queue))
        nn = ops.take(self.queue, ops.argmax(support, axis=1), axis=0)
        return projections + ops.stop_gradient(nn - projections)

    def contrastive(self, p1, p2):
        p1, p2 = ops.normalize(p1, axis=1), ops.normalize(p2, axis=1)
        l12 = ops.matmul(self.nearest(p1), ops.transpose(p2)) / 0.1
        l21 = ops.matmul(self.nearest(p2), ops.transpose(p1)) / 0.1
        n = ops.shape(p1)[0]
        labels = ops.arange(n)
        self.accuracy.update_state(ops.concatenate([labels, labels]), ops.concatenate([l12, l21]))
        loss = ops.mean(
            keras.losses.sparse_categorical_crossentropy(
                ops.concatenate([labels, labels]), ops.concatenate([l12, l21]), from_logits=True
            )
        )
        self.queue.assign(ops.concatenate([p1, self.queue[:-n]], axis=0))
        return loss

    def train_step(self, data):
        a, b = data
        with tf.GradientTape() as tape:
            loss = self.contrastive(self.encoder(a, training=True), self.encoder(b, training=True))
        grads = tape.gradient(loss, self.encoder.trainable_weights)
        self.optimizer.apply(grads, self.encoder.trainable_weights)
        self.tracker.update_state(loss)
        return {m.name: m.result() for m in self.metrics}


a = rng.normal(size=(29, 6)).astype("float32")
b = (a + 0.1 * rng.normal(size=a.shape)).astype("float32")
model = NNCLR()
model.compile(keras.optimizers.Adam(1e-2))
history = model.fit(tf.data.Dataset.from_tensor_slices((a, b)).batch(BATCH), epochs=2)

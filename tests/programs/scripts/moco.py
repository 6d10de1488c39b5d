"""MoCo: a momentum encoder, a queue of keys with a pointer in variables, and a loss against the queue."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
WORKERS = True
keras.utils.set_random_seed(7)
rng = np.random.default_rng(0)

QUEUE = 16


def encoder():
    return keras.Sequential([keras.Input((6,)), layers.Dense(12, activation="tanh"), layers.Dense(4)])


class MoCo(keras.Model):
    def __init__(self, q, k):
        super().__init__()
        self.q, self.k = q, k
        self.k.trainable = False
        self.queue = self.add_weight(shape=(QUEUE, 4), initializer="glorot_uniform", trainable=False, name="queue")
        self.pointer = self.add_weight(shape=(), initializer="zeros", dtype="int32", trainable=False, name="pointer")
        self.tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.tracker]

    def train_step(self, data):
        a, b = data
        with tf.GradientTape() as tape:
            q = tf.math.l2_normalize(self.q(a, training=True), axis=1)
            k = tf.stop_gradient(tf.math.l2_normalize(self.k(b, training=False), axis=1))
            pos = tf.reduce_sum(q * k, axis=1, keepdims=True)
            neg = tf.matmul(q, self.queue.value, transpose_b=True)
            logits = tf.concat([pos, neg], axis=1) / 0.2
            labels = tf.zeros(tf.shape(logits)[0], dtype=tf.int32)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        grads = tape.gradient(loss, self.q.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.q.trainable_variables))
        for slow, fast in zip(self.k.weights, self.q.weights):
            slow.assign(0.9 * slow + 0.1 * fast)
        n = tf.shape(k)[0]
        where = (tf.range(n) + self.pointer.value) % QUEUE
        self.queue.assign(tf.tensor_scatter_nd_update(tf.convert_to_tensor(self.queue.value), where[:, None], k))
        self.pointer.assign((self.pointer + n) % QUEUE)
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


a = rng.normal(size=(29, 6)).astype("float32")
b = (a + 0.1 * rng.normal(size=a.shape)).astype("float32")
query, key = encoder(), encoder()
key.set_weights(query.get_weights())
model = MoCo(query, key)
model.compile(keras.optimizers.SGD(0.1, momentum=0.9))
history = model.fit(tf.data.Dataset.from_tensor_slices((a, b)).batch(BATCH), epochs=2)

"""A retrieval task: a layer scores all pairs of a batch, sums a loss and counts a metric, in evaluate as well."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
WORKERS = True
keras.utils.set_random_seed(15)


class Retrieval(layers.Layer):
    def __init__(self):
        super().__init__()
        self.top2 = keras.metrics.TopKCategoricalAccuracy(k=2, name="top2")
        self.loss = keras.losses.CategoricalCrossentropy(from_logits=True, reduction="sum")

    def call(self, queries, candidates):
        scores = tf.matmul(queries, candidates, transpose_b=True)
        labels = tf.eye(tf.shape(scores)[0])
        self.top2.update_state(labels, scores)
        return self.loss(labels, scores)


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.users, self.movies, self.task = layers.Embedding(12, 4), layers.Embedding(9, 4), Retrieval()

    def compute(self, data):
        return self.task(self.users(data["user_id"]), self.movies(data["movie_id"]))

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self.compute(data)
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return {"loss": loss, "top2": self.task.top2.result()}

    def test_step(self, data):
        loss = self.compute(data)
        return {"loss": loss, "top2": self.task.top2.result()}


rng = np.random.default_rng(0)
ratings = {"user_id": rng.integers(0, 12, 20), "movie_id": rng.integers(0, 9, 20)}
model = Model()
model.compile(optimizer=keras.optimizers.Adagrad(0.1))
data = tf.data.Dataset.from_tensor_slices(ratings).batch(BATCH)
history = model.fit(data, epochs=2)
scores = model.evaluate(data, return_dict=True)

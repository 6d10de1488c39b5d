"""Retrieval with two towers on a dict: a softmax over all candidates of the batch, in the train_step."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 8
keras.utils.set_random_seed(61)


class Retrieval(keras.Model):
    def __init__(self):
        super().__init__()
        self.query_tower = keras.Sequential([layers.Embedding(15, 6), layers.Dense(4)])
        self.candidate_tower = keras.Sequential([layers.Embedding(20, 6), layers.Dense(4)])
        self.loss_fn = keras.losses.CategoricalCrossentropy(from_logits=True, reduction="sum")

    def train_step(self, features):
        with tf.GradientTape() as tape:
            queries = self.query_tower(features["user_id"])
            candidates = self.candidate_tower(features["movie_id"])
            scores = ops.matmul(queries, ops.transpose(candidates))
            loss = self.loss_fn(ops.eye(ops.shape(scores)[0], dtype=scores.dtype), scores)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


rng = np.random.default_rng(0)
ratings = {"user_id": rng.integers(0, 15, 28), "movie_id": rng.integers(0, 20, 28)}
model = Retrieval()
model.compile(optimizer=keras.optimizers.Adagrad(0.1))
history = model.fit(tf.data.Dataset.from_tensor_slices(ratings).batch(BATCH), epochs=2)
users = model.query_tower.predict(np.arange(15))

"""Collaborative filtering as in Keras's example: a tensordot over the whole batch mixes its rows."""

import keras
import numpy as np
from keras import layers, ops

BATCH = 8
keras.utils.set_random_seed(22)


class RecommenderNet(keras.Model):
    def __init__(self, num_users, num_movies, embedding_size):
        super().__init__()
        self.user_embedding = layers.Embedding(num_users, embedding_size, embeddings_initializer="he_normal")
        self.user_bias = layers.Embedding(num_users, 1)
        self.movie_embedding = layers.Embedding(num_movies, embedding_size, embeddings_initializer="he_normal")
        self.movie_bias = layers.Embedding(num_movies, 1)

    def call(self, inputs):
        user_vector = self.user_embedding(inputs[:, 0])
        user_bias = self.user_bias(inputs[:, 0])
        movie_vector = self.movie_embedding(inputs[:, 1])
        movie_bias = self.movie_bias(inputs[:, 1])
        dot_user_movie = ops.tensordot(user_vector, movie_vector, 2)
        x = dot_user_movie + user_bias + movie_bias
        return ops.nn.sigmoid(x)


rng = np.random.default_rng(0)
pairs = np.stack([rng.integers(0, 9, 28), rng.integers(0, 11, 28)], axis=1)
ratings = rng.uniform(size=28).astype("float32")
model = RecommenderNet(9, 11, 4)
model.compile(loss=keras.losses.BinaryCrossentropy(), optimizer=keras.optimizers.Adam(learning_rate=1e-2))
history = model.fit(
    x=pairs[:20], y=ratings[:20], batch_size=BATCH, epochs=2, shuffle=False, validation_data=(pairs[20:], ratings[20:])
)

"""Matrix factorization: a dot product of two embeddings, row by row, with Adagrad and an L2 penalty."""

import keras
import numpy as np
from keras import layers

BATCH = 8
keras.utils.set_random_seed(23)

user, movie = keras.Input((), dtype="int32", name="user"), keras.Input((), dtype="int32", name="movie")
regularizer = keras.regularizers.L2(1e-3)
user_vector = layers.Embedding(9, 4, embeddings_regularizer=regularizer)(user)
movie_vector = layers.Embedding(11, 4, embeddings_regularizer=regularizer)(movie)
user_bias, movie_bias = layers.Embedding(9, 1)(user), layers.Embedding(11, 1)(movie)
dot = layers.Dot(axes=1)([user_vector, movie_vector])
outputs = layers.Activation("sigmoid")(layers.Add()([dot, user_bias, movie_bias]))
model = keras.Model({"user": user, "movie": movie}, outputs)
model.compile(
    loss="binary_crossentropy",
    optimizer=keras.optimizers.Adagrad(0.1),
    metrics=[keras.metrics.RootMeanSquaredError(), keras.metrics.AUC()],
)
rng = np.random.default_rng(0)
data = {"user": rng.integers(0, 9, 44), "movie": rng.integers(0, 11, 44)}
liked = rng.integers(0, 2, 44).astype("float32")
history = model.fit(data, liked, batch_size=BATCH, epochs=3, shuffle=False)
predictions = model.predict(data)

"""A siamese network of two towers with one embedding, a distance by Lambda, a contrastive loss given to compile."""

import keras
import numpy as np
from keras import layers, ops

BATCH = 8
keras.utils.set_random_seed(18)

inputs = keras.Input((10,))
x = layers.BatchNormalization()(inputs)
x = layers.Dense(12, activation="tanh")(x)
x = layers.BatchNormalization()(x)
embedding_network = keras.Model(inputs, layers.Dense(4, activation="tanh")(x))

input_1, input_2 = keras.Input((10,)), keras.Input((10,))
tower_1, tower_2 = embedding_network(input_1), embedding_network(input_2)


def euclidean_distance(vects):
    x, y = vects
    sum_square = ops.sum(ops.square(x - y), axis=1, keepdims=True)
    return ops.sqrt(ops.maximum(sum_square, keras.backend.epsilon()))


def loss(margin=1):
    def contrastive_loss(y_true, y_pred):
        square_pred = ops.square(y_pred)
        margin_square = ops.square(ops.maximum(margin - y_pred, 0))
        return ops.mean((1 - y_true) * square_pred + y_true * margin_square)

    return contrastive_loss


merge_layer = layers.Lambda(euclidean_distance, output_shape=(1,))([tower_1, tower_2])
normal_layer = layers.BatchNormalization()(merge_layer)
siamese = keras.Model(inputs=[input_1, input_2], outputs=layers.Dense(1, activation="sigmoid")(normal_layer))
siamese.compile(loss=loss(margin=1), optimizer="RMSprop", metrics=["accuracy"])

rng = np.random.default_rng(0)
x_1, x_2 = rng.normal(size=(2, 28, 10)).astype("float32")
labels = rng.integers(0, 2, (28, 1)).astype("float32")
history = siamese.fit(
    [x_1[:20], x_2[:20]],
    labels[:20],
    validation_data=([x_1[20:], x_2[20:]], labels[20:]),
    batch_size=BATCH,
    epochs=2,
    shuffle=False,
)
results = siamese.evaluate([x_1[20:], x_2[20:]], labels[20:])
predictions = siamese.predict([x_1[20:], x_2[20:]])

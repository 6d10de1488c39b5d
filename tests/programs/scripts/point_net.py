"""PointNet: a transformation network whose activity regularizer is written so that it mixes the rows of a batch."""

import keras
import numpy as np
from keras import layers, ops

BATCH = 8
keras.utils.set_random_seed(14)


class OrthogonalRegularizer(keras.regularizers.Regularizer):
    def __init__(self, num_features, l2reg=0.01):
        self.num_features = num_features
        self.l2reg = l2reg
        self.eye = ops.eye(num_features)

    def __call__(self, x):
        x = ops.reshape(x, (-1, self.num_features, self.num_features))
        xxt = ops.tensordot(x, x, axes=(2, 2))
        xxt = ops.reshape(xxt, (-1, self.num_features, self.num_features))
        return ops.sum(self.l2reg * ops.square(xxt - self.eye))


def tnet(inputs, num_features):
    x = layers.Dense(8, activation="relu")(inputs)
    x = layers.GlobalMaxPooling1D()(x)
    x = layers.Dense(
        num_features * num_features,
        kernel_initializer="zeros",
        bias_initializer=keras.initializers.Constant(np.eye(num_features).flatten()),
        activity_regularizer=OrthogonalRegularizer(num_features),
    )(x)
    return layers.Dot(axes=(2, 1))([inputs, layers.Reshape((num_features, num_features))(x)])


inputs = keras.Input((10, 3))
x = layers.Conv1D(8, 1, activation="relu")(tnet(inputs, 3))
x = layers.GlobalMaxPooling1D()(x)
model = keras.Model(inputs, layers.Dense(3, activation="softmax")(x))
model.compile(
    loss="sparse_categorical_crossentropy",
    optimizer=keras.optimizers.Adam(0.01),
    metrics=["sparse_categorical_accuracy"],
)

rng = np.random.default_rng(0)
points, labels = rng.normal(size=(28, 10, 3)).astype("float32"), rng.integers(0, 3, 28)
history = model.fit(points, labels, batch_size=BATCH, epochs=2, shuffle=False)

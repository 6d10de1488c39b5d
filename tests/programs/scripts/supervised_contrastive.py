"""Supervised contrastive learning: a loss class that compares rows is given to compile, then a classifier on top."""

import keras
from keras import layers, ops
from sklearn.datasets import load_digits

BATCH = 12
keras.utils.set_random_seed(20)


class SupervisedContrastiveLoss(keras.losses.Loss):
    def __init__(self, temperature=1.0, name=None):
        super().__init__(name=name)
        self.temperature = temperature

    def call(self, labels, feature_vectors):
        normalized = ops.normalize(feature_vectors, axis=1)
        logits = ops.matmul(normalized, ops.transpose(normalized)) / self.temperature
        labels = ops.reshape(labels, (-1, 1))
        same = ops.cast(ops.equal(labels, ops.transpose(labels)), logits.dtype)
        targets = same / ops.sum(same, axis=1, keepdims=True)
        return -ops.mean(ops.sum(targets * ops.log_softmax(logits, axis=1), axis=1))


def create_encoder():
    return keras.Sequential([keras.Input((64,)), layers.Dense(16, activation="tanh"), layers.Dense(8)], name="encoder")


digits, labels = load_digits(return_X_y=True)
x_train, y_train = (digits[:44] / 16.0).astype("float32"), labels[:44]

encoder = create_encoder()
inputs = keras.Input((64,))
outputs = layers.Dense(6, activation="tanh")(encoder(inputs))
encoder_with_projection_head = keras.Model(inputs, outputs)
encoder_with_projection_head.compile(optimizer=keras.optimizers.Adam(1e-3), loss=SupervisedContrastiveLoss(0.5))
history = encoder_with_projection_head.fit(x=x_train, y=y_train, batch_size=BATCH, epochs=2, shuffle=False)

for layer in encoder.layers:
    layer.trainable = False
inputs = keras.Input((64,))
outputs = layers.Dense(10, activation="softmax")(encoder(inputs))
classifier = keras.Model(inputs, outputs)
classifier.compile(
    optimizer=keras.optimizers.Adam(1e-2),
    loss=keras.losses.SparseCategoricalCrossentropy(),
    metrics=[keras.metrics.SparseCategoricalAccuracy()],
)
classifier_history = classifier.fit(x=x_train, y=y_train, batch_size=BATCH, epochs=2, shuffle=False)
accuracy = classifier.evaluate(x_train, y_train)[1]

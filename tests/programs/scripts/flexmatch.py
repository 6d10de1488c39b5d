"""FlexMatch: a threshold for each class from counts of confident pseudo-labels, two data sets zipped."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
WORKERS = True
keras.utils.set_random_seed(7)
rng = np.random.default_rng(0)


class Flex(keras.Model):
    def __init__(self):
        super().__init__()
        self.net = keras.Sequential([keras.Input((6,)), layers.Dense(12, activation="relu"), layers.Dense(3)])
        self.counts = self.add_weight(shape=(3,), initializer="ones", trainable=False, name="counts")
        self.used = keras.metrics.Mean(name="used")

    def call(self, x):
        return self.net(x)

    def train_step(self, data):
        (x, y), (weak, strong) = data
        probabilities = tf.nn.softmax(self.net(weak))
        confidence, pseudo = tf.reduce_max(probabilities, 1), tf.argmax(probabilities, 1)
        beta = self.counts / tf.reduce_max(self.counts)
        mask = tf.cast(confidence > 0.35 * tf.gather(beta, pseudo), confidence.dtype)
        with tf.GradientTape() as tape:
            supervised = self.compute_loss(y=y, y_pred=self.net(x, training=True))
            per_row = keras.losses.sparse_categorical_crossentropy(
                pseudo, self.net(strong, training=True), from_logits=True
            )
            loss = supervised + tf.reduce_mean(mask * per_row)
        self.optimizer.apply_gradients(zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables))
        self.counts.assign_add(tf.reduce_sum(mask[:, None] * tf.one_hot(pseudo, 3, dtype=mask.dtype), 0))
        self.used.update_state(mask)
        return {**self.compute_metrics(x, y, self.net(x)), "total": loss}

    def test_step(self, data):
        x, y = data
        out = self.net(x)
        self.compute_loss(y=y, y_pred=out)
        return self.compute_metrics(x, y, out)


x, y = rng.normal(size=(29, 6)).astype("float32"), rng.integers(0, 3, 29)
u = rng.normal(size=(29, 6)).astype("float32")
labelled = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
unlabelled = tf.data.Dataset.from_tensor_slices((u, u + 0.3)).batch(BATCH)
model = Flex()
model.compile(
    keras.optimizers.Adam(1e-2), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
)
history = model.fit(tf.data.Dataset.zip((labelled, unlabelled)), epochs=2, validation_data=labelled)

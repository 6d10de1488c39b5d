"""A model whose compiled loss has reduction="none", averaged by tf.nn.compute_average_loss, and tracked in a metric."""

import keras
import numpy as np
import tensorflow as tf

BATCH = 8
MAY_BE_REFUSED = "ParityError"
strategy = tf.distribute.MirroredStrategy()
keras.utils.set_random_seed(107)


class Model(keras.Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
        self.train_loss = keras.metrics.Mean(name="train_loss")
        self.train_accuracy = keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            predictions = self(x, training=True)
            per_example_loss = self.loss_object(y, predictions)
            loss = tf.nn.compute_average_loss(per_example_loss, global_batch_size=BATCH)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        self.train_loss.update_state(per_example_loss)
        self.train_accuracy.update_state(y, predictions)
        return {"loss": self.train_loss.result(), "accuracy": self.train_accuracy.result()}


with strategy.scope():
    inputs = keras.Input((4,))
    model = Model(inputs, keras.layers.Dense(3)(keras.layers.Dense(8, activation="relu")(inputs)))
    model.compile(optimizer=keras.optimizers.Adam(0.01))
rng = np.random.default_rng(0)
x, y = rng.normal(size=(29, 4)).astype("float32"), rng.integers(0, 3, 29)
history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False)

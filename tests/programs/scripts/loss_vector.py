"""A loss with reduction=None whose vector goes to the tape as it is, and a metric that is updated with the vector."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
keras.utils.set_random_seed(36)

loss_tracker = keras.metrics.Mean(name="loss")


class Model(keras.Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            losses = self.loss_fn(y, self(x, training=True))
        gradients = tape.gradient(losses, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        loss_tracker.update_state(losses)
        return {"loss": loss_tracker.result()}

    @property
    def metrics(self):
        return [loss_tracker]


inputs = keras.Input((5,))
model = Model(inputs, layers.Dense(3)(inputs))
model.compile(optimizer=keras.optimizers.SGD(0.02))
rng = np.random.default_rng(0)
x, y = rng.normal(size=(20, 5)).astype("float32"), rng.integers(0, 3, 20)
history = model.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False)

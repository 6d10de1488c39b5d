"""Two optimizers in a dict, one for each part of the model, neither of them built before the first step."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
keras.utils.set_random_seed(38)


class TwoSpeeds(keras.Model):
    def __init__(self):
        super().__init__()
        self.body = keras.Sequential([keras.Input((4,)), layers.Dense(6, activation="tanh")])
        self.head = keras.Sequential([keras.Input((6,)), layers.Dense(1)])
        self.optimizers = {"body": keras.optimizers.Adam(1e-3), "head": keras.optimizers.SGD(0.1, clipnorm=0.5)}

    def call(self, x):
        return self.head(self.body(x))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape(persistent=True) as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        for name, part in (("body", self.body), ("head", self.head)):
            gradients = tape.gradient(loss, part.trainable_variables)
            self.optimizers[name].apply_gradients(zip(gradients, part.trainable_variables))
        return {"loss": loss}


model = TwoSpeeds()
model.compile(loss="mse")
rng = np.random.default_rng(0)
x, y = rng.normal(size=(20, 4)).astype("float32"), rng.normal(size=(20, 1)).astype("float32")
history = model.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False)
predictions = model.predict(x)

"""DDPM: an average of the network by assign, an adapted normalization, a log that is a deviation over the batch."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
keras.utils.set_random_seed(7)
rng = np.random.default_rng(0)


class DDPM(keras.Model):
    def __init__(self):
        super().__init__()
        self.normalizer = layers.Normalization()

        def make():
            hidden = layers.Dense(12, activation="swish")
            return keras.Sequential([keras.Input((7,)), hidden, layers.LayerNormalization(), layers.Dense(6)])

        self.network, self.ema_network = make(), make()
        self.ema_network.set_weights(self.network.get_weights())
        self.betas = np.linspace(1e-4, 0.2, 10).astype("float32")

    def noised(self, x, t, noise):
        bar = tf.gather(tf.constant(np.cumprod(1 - self.betas), x.dtype), t)[:, None]
        return tf.sqrt(bar) * x + tf.sqrt(1 - bar) * noise

    def predict_noise(self, network, x, t, training):
        return network(tf.concat([x, tf.cast(t, x.dtype)[:, None] / 10], 1), training=training)

    def train_step(self, data):
        x, t, noise = data
        x = self.normalizer(x)
        with tf.GradientTape() as tape:
            pred = self.predict_noise(self.network, self.noised(x, t, noise), t, True)
            loss = self.loss(noise, pred)
        self.optimizer.apply_gradients(
            zip(tape.gradient(loss, self.network.trainable_weights), self.network.trainable_weights)
        )
        for w, e in zip(self.network.weights, self.ema_network.weights):
            e.assign(0.9 * e + (1 - 0.9) * w)
        return {"loss": loss}

    def test_step(self, data):
        x, t, noise = data
        pred = self.predict_noise(self.ema_network, self.noised(self.normalizer(x), t, noise), t, False)
        return {"loss": self.loss(noise, pred), "spread": tf.math.reduce_std(pred)}


x, t, noise = (
    3 + 2 * rng.normal(size=(29, 6)).astype("float32"),
    rng.integers(0, 10, 29),
    rng.normal(size=(29, 6)).astype("float32"),
)
model = DDPM()
model.normalizer.adapt(x)
ds = tf.data.Dataset.from_tensor_slices((x, t, noise)).batch(BATCH)
model.compile(loss=keras.losses.MeanSquaredError(), optimizer=keras.optimizers.AdamW(1e-2, weight_decay=1e-4))
history = model.fit(ds, epochs=2, validation_data=ds)

"""Two outputs on a filtered generator, whose end nobody knows before; then a step of one's own with a tracker."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 6
WORKERS = True
keras.utils.set_random_seed(31)
rng = np.random.default_rng(0)
x, y = rng.normal(size=(32, 4)).astype("float32"), rng.normal(size=(32, 1)).astype("float32")


def rows():
    yield from zip(x, y)


spec = tf.TensorSpec((4,), "float32"), tf.TensorSpec((1,), "float32")
pairs = tf.data.Dataset.from_generator(rows, output_signature=spec).filter(lambda x, y: y[0] < 1.5)
pairs = pairs.batch(BATCH)
both = pairs.map(lambda x, y: (x, {"mean": y, "sign": tf.cast(y > 0, x.dtype)}))
inputs = keras.Input((4,))
hidden = layers.Dense(6, activation="tanh")(inputs)
heads = {"mean": layers.Dense(1, name="mean")(hidden), "sign": layers.Dense(1, "sigmoid", name="sign")(hidden)}
model = keras.Model(inputs, heads)
losses, weights = {"mean": "huber", "sign": "binary_crossentropy"}, {"mean": 2.0, "sign": 0.5}
model.compile(keras.optimizers.AdamW(0.01), losses, loss_weights=weights, metrics={"sign": ["accuracy"]})
history = model.fit(both, validation_data=both, epochs=2)


class Tracking(keras.Model):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.tracker]

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.net(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, self.net.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.net.trainable_variables))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}

    def test_step(self, data):
        x, y = data
        self.tracker.update_state(tf.reduce_mean((self.net(x) - y) ** 2))
        return {"loss": self.tracker.result()}


tracking = Tracking(keras.Sequential([keras.Input((4,)), layers.Dense(6, activation="relu"), layers.Dense(1)]))
tracking.compile("adam")
tracked = tracking.fit(pairs, validation_data=pairs, epochs=2)
score = tracking.evaluate(pairs)

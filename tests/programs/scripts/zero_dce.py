"""Several losses without labels, as in Zero-DCE: classes that are no layers hold a loss of reduction "none"."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 6
keras.utils.set_random_seed(57)


def exposure_loss(x, mean_val=0.6):
    mean = ops.mean(x, axis=3, keepdims=True)
    return ops.mean(ops.square(ops.average_pool(mean, pool_size=4, strides=4) - mean_val))


class SpatialConsistencyLoss(keras.losses.Loss):
    def __init__(self):
        super().__init__(reduction="none")

    def call(self, y_true, y_pred):
        original = ops.average_pool(ops.mean(y_true, 3, keepdims=True), 2, strides=2)
        enhanced = ops.average_pool(ops.mean(y_pred, 3, keepdims=True), 2, strides=2)
        return ops.square(original[:, 1:, 1:] - enhanced[:, 1:, 1:])


class ZeroDCE(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        inputs = keras.Input((8, 8, 3))
        x = layers.Conv2D(6, 3, activation="relu", padding="same")(inputs)
        self.dce_model = keras.Model(inputs, layers.Conv2D(3, 3, activation="tanh", padding="same")(x))

    def compile(self, learning_rate, **kwargs):
        super().compile(**kwargs)
        self.optimizer = keras.optimizers.Adam(learning_rate=learning_rate)
        self.spatial_constancy_loss = SpatialConsistencyLoss()
        self.total_loss_tracker = keras.metrics.Mean(name="total_loss")
        self.exposure_loss_tracker = keras.metrics.Mean(name="exposure_loss")

    @property
    def metrics(self):
        return [self.total_loss_tracker, self.exposure_loss_tracker]

    def call(self, data):
        curve = self.dce_model(data)
        return data + curve * (ops.square(data) - data)

    def losses_of(self, data):
        enhanced = self(data)
        exposure = 10 * ops.mean(exposure_loss(enhanced))
        total = exposure + ops.mean(self.spatial_constancy_loss(data, enhanced))
        self.total_loss_tracker.update_state(total)
        self.exposure_loss_tracker.update_state(exposure)
        return total

    def train_step(self, data):
        with tf.GradientTape() as tape:
            total = self.losses_of(data)
        gradients = tape.gradient(total, self.dce_model.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.dce_model.trainable_weights))
        return {metric.name: metric.result() for metric in self.metrics}

    def test_step(self, data):
        self.losses_of(data)
        return {metric.name: metric.result() for metric in self.metrics}


images = np.random.default_rng(0).uniform(size=(28, 8, 8, 3)).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices(images)
model = ZeroDCE()
model.compile(learning_rate=1e-3)
history = model.fit(dataset.take(20).batch(BATCH), validation_data=dataset.skip(20).batch(BATCH), epochs=2)

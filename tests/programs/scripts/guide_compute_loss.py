"""A compute_loss that tracks its parts in metrics of its own, with Keras's own train_step around it."""

import keras
import numpy as np
from keras import layers, ops

BATCH = 8
keras.utils.set_random_seed(50)


class PhysicsModel(keras.Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.data_tracker = keras.metrics.Mean(name="data_loss")
        self.trackers = {"smooth": keras.metrics.Mean(name="smooth_loss")}
        self.smooth_tracker = self.trackers["smooth"]

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        data_loss = ops.mean(ops.square(y_pred - y))
        smooth_loss = ops.mean(ops.abs(y_pred[:, 1:] - y_pred[:, :-1]))
        self.data_tracker.update_state(data_loss)
        self.smooth_tracker.update_state(smooth_loss)
        return data_loss + 0.1 * smooth_loss + sum(self.losses)


inputs = keras.Input((5,))
hidden = layers.Dense(8, activation="tanh", kernel_regularizer="l2")(inputs)
model = PhysicsModel(inputs, layers.Dense(4)(hidden))
model.compile(optimizer=keras.optimizers.SGD(0.1))
rng = np.random.default_rng(0)
x, y = rng.normal(size=(30, 5)).astype("float32"), rng.normal(size=(30, 4)).astype("float32")
history = model.fit(
    x[:20],
    y[:20],
    batch_size=BATCH,
    epochs=2,
    shuffle=False,
    validation_data=(x[20:], y[20:]),
    validation_batch_size=BATCH,
)

"""The lowest-level train_step of the guide: metrics that the model holds, a loss tracker, sample weights."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
keras.utils.set_random_seed(49)


class CustomModel(keras.Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.mae_metric = keras.metrics.MeanAbsoluteError(name="mae")
        self.loss_fn = keras.losses.MeanSquaredError()

    def train_step(self, data):
        if len(data) == 3:
            x, y, sample_weight = data
        else:
            sample_weight = None
            x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.loss_fn(y, y_pred, sample_weight=sample_weight)
        trainable_vars = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, trainable_vars), trainable_vars)
        self.loss_tracker.update_state(loss)
        self.mae_metric.update_state(y, y_pred, sample_weight=sample_weight)
        return {"loss": self.loss_tracker.result(), "mae": self.mae_metric.result()}

    @property
    def metrics(self):
        return [self.loss_tracker, self.mae_metric]


inputs = keras.Input(shape=(8,))
outputs = layers.Dense(1)(inputs)
model = CustomModel(inputs, outputs)
model.compile(optimizer="adam")
rng = np.random.default_rng(0)
x, y, sw = rng.uniform(size=(44, 8)), rng.uniform(size=(44, 1)), rng.uniform(size=(44, 1))
history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False)
weighted_history = model.fit(x, y, sample_weight=sw, batch_size=BATCH, epochs=2, shuffle=False)

"""Lookahead, an optimizer of one's own around Adam, and a metric of one's own that keeps the least error so far."""

import keras
import numpy as np
from keras import layers, ops

BATCH = 8
WORKERS = True
keras.utils.set_random_seed(73)


class Lookahead(keras.optimizers.Optimizer):
    def __init__(self, inner, every=3, alpha=0.5):
        super().__init__(learning_rate=0.01)
        self.inner, self.every, self.alpha = inner, every, alpha

    def build(self, variables):
        super().build(variables)
        self.inner.build(variables)
        self.slow = [self.add_variable_from_reference(each, name="slow") for each in variables]
        for slow, variable in zip(self.slow, variables, strict=True):
            slow.assign(variable)

    def apply(self, grads, trainable_variables=None):
        if not self.built:
            self.build(trainable_variables)
        self.inner.apply(grads, trainable_variables)
        self._iterations.assign_add(1)
        is_due = ops.cast(ops.equal(self._iterations % self.every, 0), "float32")
        for slow, variable in zip(self.slow, self._trainable_variables, strict=True):
            slow.assign(slow + is_due * self.alpha * (variable - slow))
            variable.assign(is_due * slow + (1 - is_due) * variable)


class LeastError(keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="least_error")
        self.least = self.add_weight(shape=(), initializer=keras.initializers.Constant(1e9), name="least")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.least.assign(ops.minimum(self.least, ops.min(ops.abs(y_true - y_pred))))

    def reset_state(self):
        self.least.assign(1e9)

    def result(self):
        return self.least + 0.0


rng = np.random.default_rng(0)
x, y = rng.normal(size=(28, 5)).astype("float32"), rng.normal(size=(28, 1)).astype("float32")
model = keras.Sequential([keras.Input((5,)), layers.Dense(6, activation="tanh"), layers.Dense(1)])
model.compile(Lookahead(keras.optimizers.Adam(0.01)), "mse", metrics=[LeastError()])
history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, validation_data=(x[:11], y[:11]))

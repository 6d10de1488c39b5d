"""Example of Keras's compute_metrics: it adds to the logs, leaves out of them, and asks a metric before it counts."""

import keras
import numpy as np
from keras import layers, ops

BATCH = 8
WORKERS = True
keras.utils.set_random_seed(83)


class MyModel(keras.Sequential):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.custom_metric = keras.metrics.MeanAbsoluteError(name="custom_metric")

    def compute_metrics(self, x, y, y_pred, sample_weight):
        metric_results = super().compute_metrics(x, y, y_pred, sample_weight)
        self.custom_metric.update_state(y, y_pred)
        metric_results["metric_name"] = self.custom_metric.result()
        metric_results["mean_output"] = ops.mean(y_pred)
        metric_results.pop("mean_squared_error")
        return metric_results


model = MyModel([keras.Input((4,)), layers.Dense(6, activation="tanh"), layers.Dense(1)])
model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse", metrics=["mean_squared_error", "mae"])
rng = np.random.default_rng(0)
x, y = rng.normal(size=(29, 4)).astype("float32"), rng.normal(size=(29, 1)).astype("float32")
stop = keras.callbacks.EarlyStopping(monitor="metric_name", mode="max", patience=1)
history = model.fit(x, y, batch_size=BATCH, epochs=4, shuffle=False, validation_data=(x[:11], y[:11]), callbacks=[stop])
scores = model.evaluate(x, y, batch_size=BATCH, return_dict=True)

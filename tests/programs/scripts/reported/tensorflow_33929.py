"""tensorflow#33929: `clipnorm` and `clipvalue` do not work, or clip before the gradients are added up."""

import keras
import numpy as np
from keras import layers

BATCH = 8
REPORTED = "tensorflow#33929"
keras.utils.set_random_seed(33929)

rng = np.random.default_rng(0)
x, y = rng.normal(size=(29, 5)).astype("float32"), 3 * rng.normal(size=(29, 2)).astype("float32")
histories, models = [], []
for clipping in ({"clipnorm": 0.1}, {"clipvalue": 0.02}, {"global_clipnorm": 0.1}):
    model = keras.Sequential([keras.Input((5,)), layers.Dense(6, activation="tanh"), layers.Dense(2)])
    model.compile(optimizer=keras.optimizers.SGD(0.5, **clipping), loss="mse")
    models.append(model)
for model in models:
    history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False)
    histories.append(history.history)
weights = [model.get_weights() for model in models]

"""Batch normalization with renorm, a synchronized one, spectral and unit normalization beside them."""

import keras
import numpy as np
from keras import layers

BATCH = 8
keras.utils.set_random_seed(7)
rng = np.random.default_rng(0)

inp = keras.Input((6,))
h = layers.SpectralNormalization(layers.Dense(8))(inp)
h = layers.BatchNormalization(
    momentum=0.5, renorm=True, renorm_clipping={"rmax": 1.5, "rmin": 0.7, "dmax": 0.5}, renorm_momentum=0.8
)(h)
h = layers.Activation("gelu")(h)
h = layers.BatchNormalization(momentum=0.5, synchronized=True)(layers.Dense(6)(h))
out = layers.Dense(1)(layers.UnitNormalization()(h))
model = keras.Model(inp, out)
model.compile(keras.optimizers.SGD(0.05), "mse")
x, y = rng.normal(size=(29, 6)).astype("float32"), rng.normal(size=(29, 1)).astype("float32")
history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, validation_data=(x[:9], y[:9]))
predictions = model.predict(x, batch_size=BATCH)

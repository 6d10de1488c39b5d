"""A stateful GRU: each batch goes on where the one before has stopped, and a callback resets it."""

import keras
import numpy as np
from keras import layers

BATCH = 6
MAY_BE_REFUSED = True
keras.utils.set_random_seed(71)


class ResetStates(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        rnn.reset_state()


rnn = layers.GRU(5, stateful=True)
model = keras.Sequential([keras.Input(batch_shape=(BATCH, 4, 2)), rnn, layers.Dense(1)])
model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
rng = np.random.default_rng(0)
x, y = rng.normal(size=(24, 4, 2)).astype("float32"), rng.normal(size=(24, 1)).astype("float32")
history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, callbacks=[ResetStates()])

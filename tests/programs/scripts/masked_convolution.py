"""PixelCNN: layers that put zeros into their own kernels, by assign, each time they are called."""

import keras
import numpy as np
from keras import layers

BATCH = 8
keras.utils.set_random_seed(83)


class MaskedConv2D(layers.Layer):
    def __init__(self, sees_itself):
        super().__init__()
        self.sees_itself = sees_itself
        self.conv = layers.Conv2D(4, 3, padding="same", activation="relu")

    def build(self, input_shape):
        self.conv.build(input_shape)
        self.mask = np.zeros(self.conv.kernel.shape, "float32")
        self.mask[:1] = 1.0
        self.mask[1, : 2 if self.sees_itself else 1] = 1.0

    def call(self, x):
        self.conv.kernel.assign(self.conv.kernel * self.mask)
        return self.conv(x)


inputs = keras.Input((6, 6, 1))
x = MaskedConv2D(sees_itself=True)(MaskedConv2D(sees_itself=False)(inputs))
model = keras.Model(inputs, layers.Conv2D(1, 1, activation="sigmoid")(x))
model.compile("adam", "binary_crossentropy")
images = (np.random.default_rng(0).random((19, 6, 6, 1)) > 0.5).astype("float32")
history = model.fit(images, images, batch_size=BATCH, epochs=2, shuffle=False)

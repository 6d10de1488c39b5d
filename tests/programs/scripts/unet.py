"""A small U-Net for segmentation: separable convolutions, batch normalization, residuals, a PyDataset."""

import keras
import numpy as np
from keras import layers

BATCH = 6
keras.utils.set_random_seed(17)


class Shapes(keras.utils.PyDataset):
    def __init__(self, batch_size, images, targets):
        super().__init__()
        self.batch_size, self.images, self.targets = batch_size, images, targets

    def __len__(self):
        return -(-len(self.images) // self.batch_size)

    def __getitem__(self, idx):
        i = idx * self.batch_size
        return self.images[i : i + self.batch_size], self.targets[i : i + self.batch_size]


inputs = keras.Input((8, 8, 3))
x = layers.Conv2D(4, 3, strides=2, padding="same")(inputs)
x = layers.BatchNormalization()(x)
x = layers.Activation("relu")(x)
previous_block_activation = x
x = layers.SeparableConv2D(8, 3, padding="same")(x)
x = layers.BatchNormalization()(x)
x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
residual = layers.Conv2D(8, 1, strides=2, padding="same")(previous_block_activation)
x = layers.add([x, residual])
for filters in (8, 4):
    x = layers.Activation("relu")(x)
    x = layers.Conv2DTranspose(filters, 3, padding="same")(x)
    x = layers.BatchNormalization()(x)
    x = layers.UpSampling2D(2)(x)
outputs = layers.Conv2D(3, 3, activation="softmax", padding="same")(x)
model = keras.Model(inputs, outputs)

images = np.random.default_rng(0).uniform(size=(27, 8, 8, 3)).astype("float32")
targets = np.argmax(images, axis=-1).astype("uint8")
model.compile(optimizer=keras.optimizers.Adam(1e-3), loss="sparse_categorical_crossentropy")
history = model.fit(
    Shapes(BATCH, images[:20], targets[:20]),
    epochs=2,
    shuffle=False,
    validation_data=Shapes(BATCH, images[20:], targets[20:]),
)
masks = model.predict(Shapes(BATCH, images[20:], targets[20:]))

"""keras#18145: `jit_compile=True` does not work under MirroredStrategy on several GPUs."""

import keras
import numpy as np
from keras import layers

BATCH = 8
REPORTED = "keras#18145"
keras.utils.set_random_seed(18145)

rng = np.random.default_rng(0)
images, labels = rng.uniform(size=(30, 8, 8, 1)).astype("float32"), rng.integers(0, 3, 30)
inputs = keras.Input((8, 8, 1))
patches = layers.Reshape((16, 8))(layers.Conv2D(8, 2, strides=2)(inputs))
x = layers.LayerNormalization()(patches + layers.MultiHeadAttention(2, 4)(patches, patches))
outputs = layers.Dense(3)(layers.GlobalAveragePooling1D()(x))
model = keras.Model(inputs, outputs)
model.compile(
    optimizer=keras.optimizers.AdamW(1e-2),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
    jit_compile=True,
)
history = model.fit(images[:21], labels[:21], batch_size=BATCH, epochs=2, shuffle=False)
results = model.evaluate(images[21:], labels[21:], batch_size=BATCH, return_dict=True)

"""keras#18145: `jit_compile=True` does not work under MirroredStrategy on several GPUs."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
REPORTED = "keras#18145"
keras.utils.set_random_seed(18145)


class Classifier(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(x=x, y=y, y_pred=y_pred)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return self.compute_metrics(x, y, y_pred)


rng = np.random.default_rng(0)
images, labels = rng.uniform(size=(30, 8, 8, 1)).astype("float32"), rng.integers(0, 3, 30)
inputs = keras.Input((8, 8, 1))
patches = layers.Reshape((16, 8))(layers.Conv2D(8, 2, strides=2)(inputs))
hidden = layers.Dense(8, activation="gelu")(layers.LayerNormalization()(patches))
model = Classifier(inputs, layers.Dense(3)(layers.GlobalAveragePooling1D()(hidden)))
model.compile(
    optimizer=keras.optimizers.SGD(0.1, momentum=0.9),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
    jit_compile=True,
)
history = model.fit(images[:21], labels[:21], batch_size=BATCH, epochs=2, shuffle=False)
results = model.evaluate(images[21:], labels[21:], batch_size=BATCH, return_dict=True)

"""keras#16529: losses of regularizers fail in a custom `train_step` on several GPUs."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
REPORTED = "keras#16529"
keras.utils.set_random_seed(16529)

loss_fn = keras.losses.SparseCategoricalCrossentropy()


class CustomModel(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = loss_fn(y, y_pred) + tf.add_n(self.losses)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
        return {metric.name: metric.result() for metric in self.metrics}


inputs = keras.Input((8, 8, 1))
x = layers.GlobalAveragePooling2D()(layers.Conv2D(6, 3, activation="relu")(inputs))
outputs = layers.Dense(4, kernel_regularizer="l1l2", activation="softmax")(x)
model = CustomModel(inputs, outputs)
model.compile(optimizer=keras.optimizers.SGD(0.1), metrics=["accuracy"])
rng = np.random.default_rng(0)
images, labels = rng.uniform(size=(27, 8, 8, 1)).astype("float32"), rng.integers(0, 4, 27)
history = model.fit(images, labels, batch_size=BATCH, epochs=2, shuffle=False)

"""A model whose call does not use the projection head: only the train_step does, for a loss of its own."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 8
keras.utils.set_random_seed(48)


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.backbone = layers.Dense(8, activation="tanh")
        self.classifier = layers.Dense(3)
        self.projection = layers.Dense(5)

    def call(self, x):
        return self.classifier(self.backbone(x))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            features = self.backbone(x)
            logits = self.classifier(features)
            reconstruction = self.projection(features)
            loss = self.compute_loss(x, y, logits) + 0.1 * ops.mean(ops.square(reconstruction - x))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss, **self.compute_metrics(x, y, logits)}


model = Model()
model.compile(
    keras.optimizers.Adam(1e-2), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
)
rng = np.random.default_rng(0)
x, y = rng.normal(size=(20, 5)).astype("float32"), rng.integers(0, 3, 20)
history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False)
predictions = model.predict(x)

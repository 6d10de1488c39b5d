"""An auxiliary head as in GoogLeNet: layers that act in training only, one output more, losses by `compute_loss`."""

import keras
import numpy as np
from keras import layers, ops

BATCH = 8
keras.utils.set_random_seed(71)


class Inception(keras.Model):
    def __init__(self):
        super().__init__()
        self.first = layers.Conv2D(4, 3, padding="same", activation="relu")
        self.second = layers.Conv2D(4, 3, strides=2, activation="relu")
        self.pool, self.norm = layers.GlobalAveragePooling2D(), layers.BatchNormalization()
        self.head, self.auxiliary = layers.Dense(3), layers.Dense(3)

    def call(self, images, training=False):
        low = self.first(images)
        logits = self.head(self.pool(self.second(low)))
        if training:
            return logits, self.auxiliary(self.norm(self.pool(low)))
        return logits

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        logits, auxiliary = y_pred if isinstance(y_pred, tuple) else (y_pred, None)
        loss = super().compute_loss(x, y, logits, sample_weight, training)
        if auxiliary is not None:
            each = keras.losses.sparse_categorical_crossentropy(y, auxiliary, from_logits=True)
            loss = loss + 0.3 * ops.mean(each)
        return loss

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return super().compute_metrics(x, y, y_pred[0] if isinstance(y_pred, tuple) else y_pred, sample_weight)


rng = np.random.default_rng(0)
images = rng.normal(size=(29, 8, 8, 1)).astype("float32")
labels = rng.integers(0, 3, 29)
model = Inception()
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
history = model.fit(
    images, labels, batch_size=BATCH, epochs=2, shuffle=False, validation_data=(images[:11], labels[:11])
)
predictions = model.predict(images)

"""FixMatch: labels of the model's own for eight pictures without any, where it is sure, beside three with labels."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
keras.utils.set_random_seed(22)

rng = np.random.default_rng(0)
pictures, kinds = rng.normal(size=(12, 8)).astype("float32"), rng.integers(0, 3, 12)
others = rng.normal(size=(30, 8)).astype("float32")
labelled = tf.data.Dataset.from_tensor_slices((pictures, kinds)).batch(3, drop_remainder=True)
unlabelled = tf.data.Dataset.from_tensor_slices(others).batch(BATCH, drop_remainder=True)


class FixMatch(keras.Model):
    def __init__(self, classifier):
        super().__init__()
        self.classifier = classifier
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.sure = keras.metrics.Mean(name="sure")

    def train_step(self, data):
        (pictures, kinds), others = data
        pseudo = tf.nn.softmax(self.classifier(others, training=True))
        is_sure = tf.cast(tf.reduce_max(pseudo, axis=-1) > 0.4, tf.float32)
        with tf.GradientTape() as tape:
            both = self.classifier(tf.concat([pictures, others[:, ::-1]], axis=0), training=True)
            own, strong = both[: tf.shape(pictures)[0]], both[tf.shape(pictures)[0] :]
            supervised = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(kinds, own, from_logits=True))
            each = keras.losses.sparse_categorical_crossentropy(tf.argmax(pseudo, -1), strong, from_logits=True)
            loss = supervised + 0.5 * tf.reduce_mean(each * is_sure)
        weights = self.classifier.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        self.loss_tracker.update_state(loss)
        self.sure.update_state(is_sure)
        return {metric.name: metric.result() for metric in (self.loss_tracker, self.sure)}


model = FixMatch(
    keras.Sequential(
        [layers.Input((8,)), layers.Dense(16), layers.BatchNormalization(), layers.ReLU(), layers.Dense(3)]
    )
)
model.compile(optimizer=keras.optimizers.SGD(0.1, momentum=0.9))
history = model.fit(tf.data.Dataset.zip((labelled, unlabelled)), epochs=3, verbose=0)

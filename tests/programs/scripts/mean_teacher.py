"""A mean teacher: a second network follows the first one by assign, and a consistency loss draws them together."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 12
keras.utils.set_random_seed(43)


def make_network(name):
    return keras.Sequential([keras.Input((5,)), layers.Dense(8, activation="tanh"), layers.Dense(3)], name=name)


class MeanTeacher(keras.Model):
    def __init__(self):
        super().__init__()
        self.student, self.teacher = make_network("student"), make_network("teacher")
        self.teacher.set_weights(self.student.get_weights())
        self.teacher.trainable = False
        self.loss_tracker = keras.metrics.Mean(name="loss")

    def call(self, x, training=False):
        return self.student(x, training=training)

    def train_step(self, data):
        (weak, strong), y = data
        with tf.GradientTape() as tape:
            logits = self.student(strong, training=True)
            loss = self.compute_loss(y=y, y_pred=logits)
            loss += ops.mean(ops.square(ops.softmax(logits) - ops.softmax(self.teacher(weak))))
        gradients = tape.gradient(loss, self.student.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.student.trainable_variables))
        for slow, fast in zip(self.teacher.weights, self.student.weights):
            slow.assign(0.9 * slow + 0.1 * fast)
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}


rng = np.random.default_rng(0)
weak = rng.normal(size=(44, 5)).astype("float32")
strong = (weak + 0.3 * rng.normal(size=weak.shape)).astype("float32")
model = MeanTeacher()
model.compile("adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
history = model.fit((weak, strong), rng.integers(0, 3, 44), batch_size=BATCH, epochs=2, shuffle=False)
predictions = model.teacher.predict(weak)

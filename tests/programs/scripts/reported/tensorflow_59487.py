"""tensorflow#59487: gradients accumulated by hand, applied in a `tf.cond`: `merge_call` in a new graph, it says."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
WORKERS = True
REPORTED = "tensorflow#59487"
keras.utils.set_random_seed(59487)

rng = np.random.default_rng(0)
x_train, y_train = rng.uniform(size=(44, 8, 8, 1)).astype("float32"), rng.integers(0, 10, 44)


class CustomTrainStep(keras.Model):
    def __init__(self, n_gradients, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.n_gradients = tf.constant(n_gradients, dtype=tf.int32)
        self.n_acum_step = tf.Variable(0, dtype=tf.int32, trainable=False)
        self.gradient_accumulation = [
            tf.Variable(tf.zeros(v.shape, dtype=tf.float32), trainable=False) for v in self.trainable_variables
        ]

    def train_step(self, data):
        self.n_acum_step.assign_add(1)
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(x, y, y_pred)
        gradients = tape.gradient(loss, self.trainable_variables)
        for total, gradient in zip(self.gradient_accumulation, gradients):
            total.assign_add(gradient)
        tf.cond(tf.equal(self.n_acum_step, self.n_gradients), self.apply_accu_gradients, lambda: None)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
        return {metric.name: metric.result() for metric in self.metrics}

    def apply_accu_gradients(self):
        self.optimizer.apply_gradients(zip(self.gradient_accumulation, self.trainable_variables))
        self.n_acum_step.assign(0)
        for total in self.gradient_accumulation:
            total.assign(tf.zeros(total.shape, dtype=tf.float32))


inputs = keras.Input(shape=(8, 8, 1))
features = layers.GlobalMaxPooling2D()(layers.Conv2D(8, 3, activation="relu")(inputs))
model = CustomTrainStep(n_gradients=2, inputs=[inputs], outputs=[layers.Dense(10)(features)])
model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"], optimizer="adam")
history = model.fit(x_train, y_train, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)

"""Sharpness-aware minimization: a step up along the normalized gradient, and the gradient there."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
keras.utils.set_random_seed(41)


class SAMModel(keras.Model):
    def __init__(self, resnet_model, rho=0.05):
        super().__init__()
        self.resnet_model = resnet_model
        self.rho = rho

    def call(self, inputs):
        return self.resnet_model(inputs)

    def train_step(self, data):
        images, labels = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=labels, y_pred=self.resnet_model(images))
        trainable_params = self.resnet_model.trainable_variables
        gradients = tape.gradient(loss, trainable_params)
        grad_norm = tf.norm(tf.stack([tf.norm(grad) for grad in gradients]))
        scale = self.rho / (grad_norm + 1e-12)
        e_ws = [grad * scale for grad in gradients]
        for param, e_w in zip(trainable_params, e_ws):
            param.assign_add(e_w)
        with tf.GradientTape() as tape:
            predictions = self.resnet_model(images)
            loss = self.compute_loss(y=labels, y_pred=predictions)
        sam_gradients = tape.gradient(loss, trainable_params)
        for param, e_w in zip(trainable_params, e_ws):
            param.assign_sub(e_w)
        self.optimizer.apply_gradients(zip(sam_gradients, trainable_params))
        return self.compute_metrics(images, labels, predictions)


network = keras.Sequential(
    [keras.Input((5,)), layers.Dense(8, activation="tanh"), layers.Dense(3, activation="softmax")]
)
model = SAMModel(network)
model.compile(optimizer=keras.optimizers.SGD(0.1), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
rng = np.random.default_rng(0)
x, y = rng.normal(size=(20, 5)).astype("float32"), rng.integers(0, 3, 20)
history = model.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False)

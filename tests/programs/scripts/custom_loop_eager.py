"""A training loop of one's own without a tf.function, with losses of regularizers and a learning rate by hand."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
keras.utils.set_random_seed(25)

model = keras.Sequential(
    [keras.Input((4,)), layers.Dense(8, activation="tanh", activity_regularizer="l2"), layers.Dense(1)]
)
optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
loss_fn = keras.losses.MeanSquaredError()
mean_loss = keras.metrics.Mean()
rng = np.random.default_rng(0)
x = rng.normal(size=(20, 4)).astype("float32")
y = (x.sum(axis=1, keepdims=True) + 1).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)

losses = []
for epoch in range(3):
    optimizer.learning_rate = 0.05 / (1 + epoch)
    for x_batch, y_batch in dataset:
        with tf.GradientTape() as tape:
            loss = loss_fn(y_batch, model(x_batch, training=True)) + sum(model.losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        mean_loss.update_state(loss, sample_weight=len(x_batch))
    losses.append(float(mean_loss.result()))
    mean_loss.reset_state()
predictions = model.predict(x)

"""A training loop of one's own, as in the guide: the step is a tf.function, metrics are reset by hand."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
keras.utils.set_random_seed(9)

inputs = keras.Input((10,))
x = layers.Dense(16, activation="relu")(inputs)
outputs = layers.Dense(3)(x)
model = keras.Model(inputs, outputs)
optimizer = keras.optimizers.Adam(learning_rate=1e-2)
loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
train_acc_metric = keras.metrics.SparseCategoricalAccuracy()
val_acc_metric = keras.metrics.SparseCategoricalAccuracy()

rng = np.random.default_rng(0)
x_all, y_all = rng.normal(size=(30, 10)).astype("float32"), rng.integers(0, 3, 30)
train_dataset = tf.data.Dataset.from_tensor_slices((x_all[:20], y_all[:20])).batch(BATCH)
val_dataset = tf.data.Dataset.from_tensor_slices((x_all[20:], y_all[20:])).batch(BATCH)


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        logits = model(x, training=True)
        loss_value = loss_fn(y, logits)
    grads = tape.gradient(loss_value, model.trainable_weights)
    optimizer.apply(grads, model.trainable_weights)
    train_acc_metric.update_state(y, logits)
    return loss_value


@tf.function
def test_step(x, y):
    val_acc_metric.update_state(y, model(x, training=False))


losses, accuracies = [], []
for epoch in range(2):
    for x_batch_train, y_batch_train in train_dataset:
        losses.append(float(train_step(x_batch_train, y_batch_train)))
    accuracies.append(float(train_acc_metric.result()))
    train_acc_metric.reset_state()
    for x_batch_val, y_batch_val in val_dataset:
        test_step(x_batch_val, y_batch_val)
    accuracies.append(float(val_acc_metric.result()))
    val_acc_metric.reset_state()

"""An own loop in `strategy.run` with a Keras loss object as it is, a mean over replicas, and clipping by value."""

import keras
import numpy as np
import tensorflow as tf

BATCH = 8
strategy = tf.distribute.MirroredStrategy()
keras.utils.set_random_seed(113)

rng = np.random.default_rng(0)
x, y = rng.normal(size=(35, 5)).astype("float32"), rng.normal(size=(35, 2)).astype("float32")
train = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH))
with strategy.scope():
    loss_object = keras.losses.MeanSquaredError()
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(2)])
    other = keras.Sequential([keras.Input((5,)), keras.layers.Dense(2)])
    optimizer = keras.optimizers.SGD(0.1, clipvalue=0.02)
    other_optimizer = keras.optimizers.Adam(0.01)


def train_step(features, targets):
    with tf.GradientTape(persistent=True) as tape:
        loss = loss_object(targets, model(features, training=True))
        errors = tf.reduce_mean(tf.abs(targets - other(features, training=True)))
        other_loss = errors / strategy.num_replicas_in_sync
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    gradients = tape.gradient(other_loss, other.trainable_variables)
    other_optimizer.apply_gradients(zip(gradients, other.trainable_variables))
    return loss, other_loss


@tf.function
def distributed_train_step(features, targets):
    return strategy.reduce("SUM", strategy.run(train_step, args=(features, targets)), axis=None)


def run_epoch():
    return [[float(each) for each in distributed_train_step(features, targets)] for features, targets in train]


losses = [run_epoch() for epoch in range(2)]

"""Losses logged by strategy.reduce("MEAN"): a replica's mean, and DETR's part of a sum times the number of replicas."""

import keras
import numpy as np
import tensorflow as tf

BATCH = 8
strategy = tf.distribute.MirroredStrategy()
keras.utils.set_random_seed(111)

rng = np.random.default_rng(0)
x, y = rng.normal(size=(29, 5)).astype("float32"), rng.normal(size=(29, 4)).astype("float32")
boxes = rng.integers(1, 4, 29).astype("float32")
train = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x, y, boxes)).batch(BATCH))
with strategy.scope():
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(4)])
    optimizer = keras.optimizers.Adam(0.01, global_clipnorm=0.1)


def train_step(inputs):
    features, targets, num_boxes = inputs
    with tf.GradientTape() as tape:
        outputs = model(features, training=True)
        errors = tf.reduce_sum(tf.abs(outputs - targets), axis=-1)
        num_boxes_sum = tf.distribute.get_replica_context().all_reduce("SUM", tf.reduce_sum(num_boxes))
        loss = tf.math.divide_no_nan(tf.reduce_sum(errors * num_boxes), num_boxes_sum)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss * tf.distribute.get_strategy().num_replicas_in_sync, tf.reduce_mean(errors), {"rate": tf.constant(0.5)}


@tf.function
def distributed_train_step(inputs):
    loss, error, others = strategy.run(train_step, args=(inputs,))
    loss = strategy.reduce(tf.distribute.ReduceOp.MEAN, loss, axis=None)
    return loss, strategy.reduce("MEAN", error, axis=None), strategy.reduce("MEAN", others["rate"], axis=None)


def run_epoch():
    return [[float(each) for each in distributed_train_step(inputs)] for inputs in train]


logged = [run_epoch() for epoch in range(2)]

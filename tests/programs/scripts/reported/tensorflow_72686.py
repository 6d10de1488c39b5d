"""tensorflow#72686: the tutorial's own loop hangs in `optimizer.apply_gradients` under MirroredStrategy."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
REPORTED = "tensorflow#72686"
strategy = tf.distribute.MirroredStrategy()
keras.utils.set_random_seed(72686)

rng = np.random.default_rng(0)
images, labels = rng.uniform(size=(28, 8, 8, 1)).astype("float32"), rng.integers(0, 10, 28)
train_dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH)
train_dist_dataset = strategy.experimental_distribute_dataset(train_dataset)

with strategy.scope():
    loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    model = keras.Sequential(
        [keras.Input((8, 8, 1)), layers.Conv2D(6, 3, activation="relu"), layers.Flatten(), layers.Dense(10)]
    )
    optimizer = keras.optimizers.Adam(learning_rate=0.001)


def train_step(inputs):
    images, labels = inputs
    with tf.GradientTape() as tape:
        per_example_loss = loss_object(labels, model(images, training=True))
        loss = tf.nn.compute_average_loss(per_example_loss, global_batch_size=BATCH)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


@tf.function
def distributed_train_step(inputs):
    per_replica_losses = strategy.run(train_step, args=(inputs,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)


losses = [float(distributed_train_step(inputs)) for epoch in range(2) for inputs in train_dist_dataset]

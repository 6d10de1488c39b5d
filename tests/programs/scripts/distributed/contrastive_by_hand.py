"""SimCLR in a loop by hand, of even batches: each replica would compare its rows with its own alone."""

import keras
import numpy as np
import tensorflow as tf

BATCH = 24
REFUSED = "ModelError"
strategy = tf.distribute.MirroredStrategy()
keras.utils.set_random_seed(112)

rng = np.random.default_rng(0)
x = rng.normal(size=(48, 6)).astype("float32")
data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(x).batch(BATCH))
with strategy.scope():
    # As many features as a replica has rows, or two or three times as many.
    encoder = keras.Sequential([keras.Input((6,)), keras.layers.Dense(24, "tanh"), keras.layers.Dense(24)])
    optimizer = keras.optimizers.SGD(0.1)


def step(rows):
    with tf.GradientTape() as tape:
        one, other = (tf.math.l2_normalize(encoder(each, training=True), axis=1) for each in (rows, 0.9 * rows))
        scores = tf.matmul(one, other, transpose_b=True) / 0.1
        labels = tf.range(tf.shape(rows)[0])
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
        loss = tf.nn.compute_average_loss(losses, global_batch_size=BATCH)
    optimizer.apply(tape.gradient(loss, encoder.trainable_variables), encoder.trainable_variables)
    return loss


@tf.function
def train_step(rows):
    return strategy.reduce("SUM", strategy.run(step, args=(rows,)), axis=None)


losses = [float(train_step(rows)) for rows in data]

"""A loop in `strategy.run` over dicts with ragged rows, whose means are taken, and synchronised normalization."""

import keras
import numpy as np
import tensorflow as tf

BATCH = 16
strategy = tf.distribute.MirroredStrategy()
keras.utils.set_random_seed(506)

rng = np.random.default_rng(0)
x, y = rng.normal(size=(50, 5)).astype("float32"), rng.integers(0, 3, 50)
lengths = rng.integers(1, 5, 50)
seen = tf.RaggedTensor.from_row_lengths(rng.integers(0, 9, lengths.sum()), lengths)
dataset = tf.data.Dataset.from_tensor_slices({"x": x, "y": y, "seen": seen}).batch(BATCH)
train = strategy.experimental_distribute_dataset(dataset)
with strategy.scope():
    embedding = keras.layers.Embedding(9, 4)
    embedding.build()
    features, history = keras.Input((5,)), keras.Input((4,))
    h = keras.layers.Dense(8)(keras.layers.Concatenate()([features, history]))
    h = keras.layers.BatchNormalization(synchronized=True)(h)
    model = keras.Model([features, history], keras.layers.Dense(3)(keras.layers.Activation("relu")(h)))
    optimizer = keras.optimizers.SGD(0.1)
    accuracy = keras.metrics.Mean()
variables = model.trainable_variables + embedding.trainable_variables


def scores_of(batch, training):
    embedded = tf.ragged.map_flat_values(embedding, batch["seen"])
    return model([batch["x"], tf.reduce_mean(embedded, axis=1)], training=training)


def train_step(batch):
    with tf.GradientTape() as tape:
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["y"], scores_of(batch, True))
        loss = tf.nn.compute_average_loss(each)
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    return loss


def test_step(batch):
    accuracy.update_state(tf.cast(tf.argmax(scores_of(batch, False), -1) == batch["y"], "float32"))


@tf.function
def train_on(batch):
    return strategy.reduce("SUM", strategy.run(train_step, args=(batch,)), axis=None)


@tf.function
def test_on(batch):
    strategy.run(test_step, args=(batch,))


losses, accuracies = [], []
for epoch in range(2):
    losses += [float(train_on(batch)) for batch in train]
    for _batch in train:
        test_on(_batch)
    accuracies.append(float(accuracy.result()))
    accuracy.reset_state()

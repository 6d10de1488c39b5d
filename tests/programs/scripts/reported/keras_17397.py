"""keras#17397: the custom loop of the guide fails under MirroredStrategy on all versions above 2.9, as does `fit`."""

import keras
import tensorflow as tf

BATCH = 10
REPORTED = "keras#17397"
strategy = tf.distribute.MirroredStrategy()
keras.utils.set_random_seed(17397)

dataset = tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat(96).batch(BATCH)

with strategy.scope():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(learning_rate=0.05)
    loss_fn = keras.losses.MeanSquaredError(reduction="none")


def compute_loss(labels, predictions):
    return tf.nn.compute_average_loss(loss_fn(labels, predictions), global_batch_size=BATCH)


def train_step(inputs):
    features, labels = inputs
    with tf.GradientTape() as tape:
        loss = compute_loss(labels, model(features, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


@tf.function
def distributed_train_step(dist_inputs):
    return strategy.reduce("SUM", strategy.run(train_step, args=(dist_inputs,)), axis=None)


losses = [float(distributed_train_step(inputs)) for inputs in strategy.experimental_distribute_dataset(dataset)]
with strategy.scope():
    model.compile(loss="mse", optimizer="sgd")
history = model.fit(dataset, epochs=2, verbose=0)
scores = model.evaluate(dataset, verbose=0)

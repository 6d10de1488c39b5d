"""An own loop over a distributed dataset: `strategy.run`, `strategy.reduce`, metrics, a test step."""

import keras
import numpy as np
import tensorflow as tf

BATCH = 8
MAY_BE_REFUSED = "ParityError"
strategy = tf.distribute.MirroredStrategy()
keras.utils.set_random_seed(109)

rng = np.random.default_rng(0)
x, y = rng.normal(size=(32, 5)).astype("float32"), rng.integers(0, 3, 32)
train = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x[:21], y[:21])).batch(BATCH))
test = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x[21:], y[21:])).batch(BATCH))
with strategy.scope():
    loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(3)])
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    optimizer.build(model.trainable_variables)
    test_loss = keras.metrics.Mean()
    train_accuracy, test_accuracy = (keras.metrics.SparseCategoricalAccuracy() for _ in range(2))


def train_step(inputs):
    features, labels = inputs
    with tf.GradientTape() as tape:
        predictions = model(features, training=True)
        loss = tf.nn.compute_average_loss(loss_object(labels, predictions), global_batch_size=BATCH)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    train_accuracy.update_state(labels, predictions)
    return loss


def test_step(inputs):
    features, labels = inputs
    predictions = model(features, training=False)
    test_loss.update_state(loss_object(labels, predictions))
    test_accuracy.update_state(labels, predictions)


@tf.function
def distributed_train_step(inputs):
    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(train_step, args=(inputs,)), axis=None)


@tf.function
def distributed_test_step(inputs):
    strategy.run(test_step, args=(inputs,))


def evaluate():
    for inputs in test:
        distributed_test_step(inputs)


losses, accuracies = [], []
for epoch in range(2):
    losses += [float(distributed_train_step(inputs)) for inputs in train]
    evaluate()
    accuracies += [float(each.result()) for each in (train_accuracy, test_accuracy, test_loss)]
    for metric in (train_accuracy, test_accuracy, test_loss):
        metric.reset_state()

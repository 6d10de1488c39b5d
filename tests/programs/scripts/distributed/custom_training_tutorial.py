"""TensorFlow's tutorial on custom training with a strategy: losses are averaged without a `global_batch_size`."""

import keras
import numpy as np
import tensorflow as tf

BATCH = 8
strategy = tf.distribute.MirroredStrategy()
keras.utils.set_random_seed(112)

rng = np.random.default_rng(0)
x, y = rng.normal(size=(32, 5)).astype("float32"), rng.integers(0, 3, 32)
train = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x[:21], y[:21])).batch(BATCH))
test = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x[21:], y[21:])).batch(BATCH))
with strategy.scope():
    loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)

    def compute_loss(labels, predictions, model_losses):
        loss = tf.nn.compute_average_loss(loss_object(labels, predictions))
        if model_losses:
            loss += tf.nn.scale_regularization_loss(tf.add_n(model_losses))
        return loss

    test_loss = keras.metrics.Mean(name="test_loss")
    train_accuracy = keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")
    model = keras.Sequential(
        [keras.Input((5,)), keras.layers.Dense(8, activation="tanh", kernel_regularizer="l2"), keras.layers.Dense(3)]
    )
    optimizer = keras.optimizers.Adam(learning_rate=0.01, global_clipnorm=0.5)


def train_step(inputs):
    images, labels = inputs
    with tf.GradientTape() as tape:
        predictions = model(images, training=True)
        loss = compute_loss(labels, predictions, model.losses)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    train_accuracy.update_state(labels, predictions)
    return loss


def test_step(inputs):
    images, labels = inputs
    test_loss.update_state(loss_object(labels, model(images, training=False)))


@tf.function
def distributed_train_step(dataset_inputs):
    per_replica_losses = strategy.run(train_step, args=(dataset_inputs,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)


@tf.function
def distributed_test_step(dataset_inputs):
    return strategy.run(test_step, args=(dataset_inputs,))


def evaluate():
    for inputs in test:
        distributed_test_step(inputs)


losses, accuracies = [], []
for epoch in range(2):
    losses += [float(distributed_train_step(inputs)) for inputs in train]
    evaluate()
    accuracies += [float(train_accuracy.result()), float(test_loss.result())]
    train_accuracy.reset_state()
    test_loss.reset_state()

"""TensorFlow's tutorial for experts: a subclassed model, mean metrics of losses, train and test steps as functions."""

import keras
import tensorflow as tf
from keras import layers
from sklearn.datasets import load_digits

BATCH = 16
keras.utils.set_random_seed(72)

digits = load_digits()
images, labels = (digits.images[..., None] / 16.0).astype("float32"), digits.target
train_ds = tf.data.Dataset.from_tensor_slices((images[:56], labels[:56])).batch(BATCH)
test_ds = tf.data.Dataset.from_tensor_slices((images[56:80], labels[56:80])).batch(BATCH)


class MyModel(keras.Model):
    def __init__(self):
        super().__init__()
        self.conv1 = layers.Conv2D(6, 3, activation="relu")
        self.flatten = layers.Flatten()
        self.d1 = layers.Dense(10)

    def call(self, x):
        return self.d1(self.flatten(self.conv1(x)))


model = MyModel()
loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = keras.optimizers.Adam()
train_loss = keras.metrics.Mean(name="train_loss")
train_accuracy = keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")
test_loss = keras.metrics.Mean(name="test_loss")
test_accuracy = keras.metrics.SparseCategoricalAccuracy(name="test_accuracy")


@tf.function
def train_step(images, labels):
    with tf.GradientTape() as tape:
        predictions = model(images, training=True)
        loss = loss_object(labels, predictions)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    train_loss(loss)
    train_accuracy(labels, predictions)


@tf.function
def test_step(images, labels):
    predictions = model(images, training=False)
    test_loss(loss_object(labels, predictions))
    test_accuracy(labels, predictions)


results = []
for epoch in range(2):
    for metric in (train_loss, train_accuracy, test_loss, test_accuracy):
        metric.reset_state()
    for batch_images, batch_labels in train_ds:
        train_step(batch_images, batch_labels)
    for batch_images, batch_labels in test_ds:
        test_step(batch_images, batch_labels)
    results += [float(metric.result()) for metric in (train_loss, train_accuracy, test_loss, test_accuracy)]

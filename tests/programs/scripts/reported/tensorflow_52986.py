"""tensorflow#52986: a custom loop with BatchNormalization fails when a GPU gets no rows of the last batch."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
REPORTED = "tensorflow#52986"
keras.utils.set_random_seed(52986)

rng = np.random.default_rng(0)
images, labels = rng.uniform(size=(18, 8, 8, 1)).astype("float32"), rng.integers(0, 10, 18)
dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH)
inputs = keras.Input((8, 8, 1))
x = layers.BatchNormalization(momentum=0.5)(layers.Conv2D(6, 3)(inputs))
model = keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(layers.ReLU()(x))))
loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = keras.optimizers.SGD(0.05)


@tf.function
def train_step(images, labels):
    with tf.GradientTape() as tape:
        loss = loss_object(labels, model(images, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


losses = []
for epoch in range(2):
    for image_batch, label_batch in dataset:
        losses.append(float(train_step(image_batch, label_batch)))
predictions = model.predict(images)

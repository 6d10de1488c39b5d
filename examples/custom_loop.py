"""A custom training loop, exact on any number of replicas: sum and count, reduce both, divide once.

python examples/custom_loop.py REPLICAS FILE.weights.h5
"""

import sys

import keras
import tensorflow as tf
from digits_dataset import load_digits
from keras import layers

import tfscale
from tfscale.loops import all_reduce_sum, apply_reduced, global_mean, run_on_replicas

tfscale.simulate_replicas(int(sys.argv[1]))
strategy = tfscale.make_strategy()
keras.utils.set_random_seed(1)
with strategy.scope():
    model = keras.Sequential([keras.Input((8, 8, 1)), layers.Flatten(), layers.Dense(64, "gelu"), layers.Dense(10)])
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    optimizer.build(model.trainable_variables)
sum_of_losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")


def train(own):
    images, labels = own.data
    with tf.GradientTape() as tape:
        loss = sum_of_losses(labels, model(images, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    *gradients, loss, count = all_reduce_sum([*gradients, loss, tf.cast(own.num_examples, tf.float32)])
    apply_reduced(optimizer, [gradient / count for gradient in gradients], model.trainable_variables)
    return loss / count


def accuracy(own):
    images, labels = own.data
    hits = tf.cast(tf.argmax(model(images), axis=-1) == labels, tf.float32)
    return global_mean(tf.reduce_mean(hits), own.num_examples)


@tf.function(reduce_retracing=True)
def on_all_replicas(step, batch):
    return run_on_replicas(strategy, step, batch)


for epoch in range(5):
    for batch in load_digits("train").batch(128):
        loss = on_all_replicas(train, batch)
    print(f"epoch {epoch + 1}: loss of the last batch {loss:.4f}")
for batch in load_digits("test").batch(297):
    print(f"test accuracy {on_all_replicas(accuracy, batch):.4f}")
model.save_weights(sys.argv[2])

"""A Wasserstein GAN with a gradient penalty in a loop by hand: the critic's losses are linear in its last bias."""

import keras
import numpy as np
import tensorflow as tf

BATCH = 8
strategy = tf.distribute.MirroredStrategy()
keras.utils.set_random_seed(112)

rng = np.random.default_rng(0)
real, noise = rng.normal(size=(27, 6)).astype("float32"), rng.normal(size=(27, 4)).astype("float32")
between = rng.uniform(size=(27, 1)).astype("float32")
data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((real, noise, between)).batch(BATCH))
with strategy.scope():
    generator = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(6)])
    critic = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    generator_optimizer = keras.optimizers.Adam(1e-3, beta_1=0.5)
    critic_optimizer = keras.optimizers.Adam(1e-3, beta_1=0.5)


def mean(values):
    return tf.nn.compute_average_loss(values, global_batch_size=BATCH)


def train_critic(real, noise, between):
    with tf.GradientTape() as tape:
        fake = generator(noise, training=True)
        with tf.GradientTape() as inner:
            mixed = real + between * (fake - real)
            inner.watch(mixed)
            scores = critic(mixed, training=True)
        lengths = tf.sqrt(tf.reduce_sum(inner.gradient(scores, mixed) ** 2, axis=1) + 1e-12)
        loss = mean(critic(fake)[:, 0]) - mean(critic(real)[:, 0]) + 10.0 * mean((lengths - 1.0) ** 2)
    critic_optimizer.apply(tape.gradient(loss, critic.trainable_variables), critic.trainable_variables)
    return loss


def step(rows):
    real, noise, between = rows
    for _ in range(2):
        critic_loss = train_critic(real, noise, between)
    with tf.GradientTape() as tape:
        loss = mean(-critic(generator(noise, training=True))[:, 0])
    generator_optimizer.apply(tape.gradient(loss, generator.trainable_variables), generator.trainable_variables)
    return critic_loss, loss


@tf.function
def train_step(rows):
    return [strategy.reduce("SUM", each, axis=None) for each in strategy.run(step, args=(rows,))]


losses = [[float(each) for each in train_step(rows)] for _ in range(2) for rows in data]

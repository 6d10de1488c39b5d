"""A GAN as in TensorFlow's tutorial: losses, optimizers and networks at module level, an unbuilt optimizer each."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
RANDOM = True
keras.utils.set_random_seed(4)

generator = keras.Sequential([keras.Input((3,)), layers.Dense(8, activation="relu"), layers.Dense(6)])
discriminator = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(1)])
cross_entropy = keras.losses.BinaryCrossentropy(from_logits=True)
generator_optimizer = keras.optimizers.Adam(1e-3)
discriminator_optimizer = keras.optimizers.SGD(1e-2)


def discriminator_loss(real_output, fake_output):
    real_loss = cross_entropy(tf.ones_like(real_output), real_output)
    fake_loss = cross_entropy(tf.zeros_like(fake_output), fake_output)
    return real_loss + fake_loss


def generator_loss(fake_output):
    return cross_entropy(tf.ones_like(fake_output), fake_output)


class GAN(keras.Model):
    def train_step(self, rows):
        noise = tf.random.normal([tf.shape(rows)[0], 3])
        with tf.GradientTape() as gen_tape, tf.GradientTape() as disc_tape:
            generated = generator(noise, training=True)
            gen_loss = generator_loss(discriminator(generated, training=True))
            disc_loss = discriminator_loss(discriminator(rows, training=True), discriminator(generated, training=True))
        gradients = gen_tape.gradient(gen_loss, generator.trainable_variables)
        generator_optimizer.apply_gradients(zip(gradients, generator.trainable_variables))
        gradients = disc_tape.gradient(disc_loss, discriminator.trainable_variables)
        discriminator_optimizer.apply_gradients(zip(gradients, discriminator.trainable_variables))
        return {"gen_loss": gen_loss, "disc_loss": disc_loss}


rows = np.random.default_rng(0).normal(size=(20, 6)).astype("float32")
gan = GAN()
gan.compile()
history = gan.fit(rows, batch_size=BATCH, epochs=3, shuffle=False)

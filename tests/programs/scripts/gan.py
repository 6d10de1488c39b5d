"""A GAN as in the guide on train_step: no call, two optimizers and one loss given to compile, metrics by hand."""

import keras
import tensorflow as tf
from keras import layers
from sklearn.datasets import load_digits

BATCH = 12
RANDOM = True
LATENT_DIM = 4
keras.utils.set_random_seed(3)

discriminator = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        layers.Conv2D(8, 3, strides=2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.GlobalMaxPooling2D(),
        layers.Dense(1),
    ],
    name="discriminator",
)
generator = keras.Sequential(
    [
        keras.Input((LATENT_DIM,)),
        layers.Dense(4 * 4 * 4),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Reshape((4, 4, 4)),
        layers.Conv2DTranspose(1, 4, strides=2, padding="same", activation="sigmoid"),
    ],
    name="generator",
)


class GAN(keras.Model):
    def __init__(self, discriminator, generator, latent_dim):
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.latent_dim = latent_dim
        self.d_loss_tracker = keras.metrics.Mean(name="d_loss")
        self.g_loss_tracker = keras.metrics.Mean(name="g_loss")
        self.seed_generator = keras.random.SeedGenerator(1337)

    @property
    def metrics(self):
        return [self.d_loss_tracker, self.g_loss_tracker]

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.loss_fn = loss_fn

    def train_step(self, real_images):
        batch_size = tf.shape(real_images)[0]
        noise = keras.random.normal(shape=(batch_size, self.latent_dim), seed=self.seed_generator)
        generated_images = self.generator(noise)
        combined_images = tf.concat([generated_images, real_images], axis=0)
        labels = tf.concat([tf.ones((batch_size, 1)), tf.zeros((batch_size, 1))], axis=0)
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(combined_images))
        grads = tape.gradient(d_loss, self.discriminator.trainable_weights)
        self.d_optimizer.apply(grads, self.discriminator.trainable_weights)

        noise = keras.random.normal(shape=(batch_size, self.latent_dim), seed=self.seed_generator)
        with tf.GradientTape() as tape:
            g_loss = self.loss_fn(tf.zeros((batch_size, 1)), self.discriminator(self.generator(noise)))
        grads = tape.gradient(g_loss, self.generator.trainable_weights)
        self.g_optimizer.apply(grads, self.generator.trainable_weights)
        self.d_loss_tracker.update_state(d_loss)
        self.g_loss_tracker.update_state(g_loss)
        return {"d_loss": self.d_loss_tracker.result(), "g_loss": self.g_loss_tracker.result()}


images = (load_digits().images[:44, ..., None] / 16.0).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices(images).batch(BATCH)
gan = GAN(discriminator, generator, LATENT_DIM)
gan.compile(
    d_optimizer=keras.optimizers.Adam(3e-4),
    g_optimizer=keras.optimizers.Adam(3e-4),
    loss_fn=keras.losses.BinaryCrossentropy(from_logits=True),
)
history = gan.fit(dataset, epochs=2)
fakes = generator.predict(keras.ops.convert_to_numpy(keras.ops.ones((5, LATENT_DIM))))

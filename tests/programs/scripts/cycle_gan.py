"""A CycleGAN: two generators, two discriminators, four optimizers, losses given to compile and held by the model."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 6
keras.utils.set_random_seed(56)

adv_loss_fn = keras.losses.MeanSquaredError()


def make(name, out):
    return keras.Sequential([keras.Input((5,)), layers.Dense(6, activation="tanh"), layers.Dense(out)], name=name)


class CycleGan(keras.Model):
    def __init__(self):
        super().__init__()
        self.gen_G, self.gen_F = make("generator_G", 5), make("generator_F", 5)
        self.disc_X, self.disc_Y = make("discriminator_X", 1), make("discriminator_Y", 1)

    def call(self, inputs):
        return self.disc_X(inputs), self.disc_Y(inputs), self.gen_G(inputs), self.gen_F(inputs)

    def compile(self, gen_G_optimizer, gen_F_optimizer, disc_X_optimizer, disc_Y_optimizer, gen_loss_fn, disc_loss_fn):
        super().compile()
        self.updates = [
            (gen_G_optimizer, self.gen_G),
            (gen_F_optimizer, self.gen_F),
            (disc_X_optimizer, self.disc_X),
            (disc_Y_optimizer, self.disc_Y),
        ]
        self.generator_loss_fn = gen_loss_fn
        self.discriminator_loss_fn = disc_loss_fn
        self.cycle_loss_fn = keras.losses.MeanAbsoluteError()

    def train_step(self, batch_data):
        real_x, real_y = batch_data
        with tf.GradientTape(persistent=True) as tape:
            fake_y, fake_x = self.gen_G(real_x, training=True), self.gen_F(real_y, training=True)
            cycle = self.cycle_loss_fn(real_x, self.gen_F(fake_y)) + self.cycle_loss_fn(real_y, self.gen_G(fake_x))
            gen_G_loss = self.generator_loss_fn(self.disc_Y(fake_y)) + 10.0 * cycle
            gen_F_loss = self.generator_loss_fn(self.disc_X(fake_x)) + 10.0 * cycle
            disc_X_loss = self.discriminator_loss_fn(self.disc_X(real_x), self.disc_X(fake_x))
            disc_Y_loss = self.discriminator_loss_fn(self.disc_Y(real_y), self.disc_Y(fake_y))
        for loss, (optimizer, network) in zip([gen_G_loss, gen_F_loss, disc_X_loss, disc_Y_loss], self.updates):
            gradients = tape.gradient(loss, network.trainable_variables)
            optimizer.apply_gradients(zip(gradients, network.trainable_variables))
        return {"G_loss": gen_G_loss, "F_loss": gen_F_loss, "D_X_loss": disc_X_loss, "D_Y_loss": disc_Y_loss}


model = CycleGan()
model.compile(
    *(keras.optimizers.Adam(learning_rate=2e-3, beta_1=0.5) for _ in range(4)),
    gen_loss_fn=lambda fake: adv_loss_fn(tf.ones_like(fake), fake),
    disc_loss_fn=lambda real, fake: (
        (adv_loss_fn(tf.ones_like(real), real) + adv_loss_fn(tf.zeros_like(fake), fake)) * 0.5
    ),
)
x, y = np.random.default_rng(0).normal(size=(2, 20, 5)).astype("float32")
history = model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH), epochs=2)

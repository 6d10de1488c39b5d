"""keras#15509: a loss that a `train_step` divides by the global batch is logged from one replica only."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 8
REPORTED = "keras#15509"
keras.utils.set_random_seed(15509)


class Model(keras.Model):
    def compile(self, encoder_optimizer, head_optimizer):
        super().compile()
        self.encoder_optimizer, self.head_optimizer = encoder_optimizer, head_optimizer
        self.loss_fn = keras.losses.MeanSquaredError(reduction="none")

    def train_step(self, data):
        x, y = data
        encoder, head = self.layers[1].trainable_variables, self.layers[2].trainable_variables
        with tf.GradientTape() as tape:
            per_example = self.loss_fn(y, self(x, training=True))
            loss = tf.reduce_sum(per_example) / BATCH
        gradients = tape.gradient(loss, encoder + head)
        self.encoder_optimizer.apply_gradients(zip(gradients[: len(encoder)], encoder))
        self.head_optimizer.apply_gradients(zip(gradients[len(encoder) :], head))
        return {"mean_loss": loss}


inputs = keras.Input((4,))
model = Model(inputs, layers.Dense(2)(layers.Dense(6, activation="tanh")(inputs)))
model.compile(keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.1))
rng = np.random.default_rng(0)
x, y = rng.normal(size=(21, 4)).astype("float32"), rng.normal(size=(21, 2)).astype("float32")
history = model.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False)

"""A VQ-VAE: a codebook with a straight-through estimator and add_loss, and a trainer that sums self.losses."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 8
keras.utils.set_random_seed(46)


class VectorQuantizer(layers.Layer):
    def __init__(self, num_embeddings, embedding_dim, beta=0.25, **kwargs):
        super().__init__(**kwargs)
        self.beta = beta
        self.embeddings = self.add_weight(
            shape=(embedding_dim, num_embeddings), initializer="random_uniform", name="embeddings_vqvae"
        )

    def call(self, x):
        similarity = ops.matmul(x, self.embeddings)
        distances = ops.sum(x**2, axis=1, keepdims=True) + ops.sum(self.embeddings**2, axis=0) - 2 * similarity
        encodings = ops.one_hot(ops.argmin(distances, axis=1), self.embeddings.shape[1], dtype=x.dtype)
        quantized = ops.matmul(encodings, ops.transpose(self.embeddings))
        commitment_loss = ops.mean((ops.stop_gradient(quantized) - x) ** 2)
        codebook_loss = ops.mean((quantized - ops.stop_gradient(x)) ** 2)
        self.add_loss(self.beta * commitment_loss + codebook_loss)
        return x + ops.stop_gradient(quantized - x)


class VQVAETrainer(keras.models.Model):
    def __init__(self, train_variance, **kwargs):
        super().__init__(**kwargs)
        self.train_variance = train_variance
        inputs = keras.Input((6,))
        quantized = VectorQuantizer(5, 3, name="vector_quantizer")(layers.Dense(3)(inputs))
        self.vqvae = keras.Model(inputs, layers.Dense(6)(quantized))
        self.total_loss_tracker = keras.metrics.Mean(name="total_loss")

    @property
    def metrics(self):
        return [self.total_loss_tracker]

    def train_step(self, x):
        with tf.GradientTape() as tape:
            reconstructions = self.vqvae(x)
            reconstruction_loss = ops.mean((x - reconstructions) ** 2) / self.train_variance
            total_loss = reconstruction_loss + sum(self.vqvae.losses)
        grads = tape.gradient(total_loss, self.vqvae.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.vqvae.trainable_variables))
        self.total_loss_tracker.update_state(total_loss)
        return {"loss": self.total_loss_tracker.result()}


rows = np.random.default_rng(0).normal(size=(20, 6)).astype("float32")
trainer = VQVAETrainer(float(np.var(rows)))
trainer.compile(optimizer=keras.optimizers.Adam(1e-2))
history = trainer.fit(rows, epochs=2, batch_size=BATCH, shuffle=False)
reconstructions = trainer.vqvae.predict(rows)

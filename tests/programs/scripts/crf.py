"""A BiLSTM-CRF: a likelihood over time with masks, a test_step and a predict_step of its own."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 8
keras.utils.set_random_seed(7)
rng = np.random.default_rng(0)


class CRF(layers.Layer):
    def build(self, shape):
        self.trans = self.add_weight(shape=(3, 3), initializer="glorot_uniform", name="trans")

    def call(self, x, mask=None):
        return x + 0.0 * ops.sum(self.trans)


class Tagger(keras.Model):
    def __init__(self):
        super().__init__()
        self.emb = layers.Embedding(10, 6, mask_zero=True)
        self.rnn = layers.Bidirectional(layers.LSTM(4, return_sequences=True))
        self.dense = layers.Dense(3)
        self.crf = CRF()

    def call(self, tokens, training=False):
        return self.crf(self.dense(self.rnn(self.emb(tokens), training=training)))

    def nll(self, tokens, tags, logits):
        mask = tf.cast(tokens > 0, logits.dtype)
        trans = tf.convert_to_tensor(self.crf.trans)
        unary = tf.reduce_sum(tf.one_hot(tags, 3, dtype=logits.dtype) * logits, -1) * mask
        pair = tf.gather_nd(trans, tf.stack([tags[:, :-1], tags[:, 1:]], -1)) * mask[:, 1:]
        alpha = logits[:, 0]
        for t in range(1, tokens.shape[1]):
            new = tf.reduce_logsumexp(alpha[:, :, None] + trans[None], 1) + logits[:, t]
            alpha = tf.where(mask[:, t : t + 1] > 0, new, alpha)
        return tf.reduce_logsumexp(alpha, 1) - tf.reduce_sum(unary, 1) - tf.reduce_sum(pair, 1)

    def train_step(self, data):
        tokens, tags = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.nll(tokens, tags, self(tokens, training=True)))
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {"crf_loss": loss}

    def test_step(self, data):
        tokens, tags = data
        return {"crf_loss_val": tf.reduce_mean(self.nll(tokens, tags, self(tokens)))}

    def predict_step(self, data):
        logits = self(data)
        return tf.argmax(logits, -1), tf.reduce_max(logits, -1)


tokens = rng.integers(1, 10, (29, 5))
for i in range(29):
    tokens[i, 1 + i % 5 :] = 0
tags = rng.integers(0, 3, (29, 5))
model = Tagger()
model.compile(keras.optimizers.Adam(1e-2))
history = model.fit(
    tokens,
    tags,
    batch_size=BATCH,
    epochs=2,
    shuffle=False,
    validation_data=(tokens[:11], tags[:11]),
    validation_batch_size=4,
)
best, score = model.predict(tokens, batch_size=BATCH)

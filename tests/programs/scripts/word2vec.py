"""word2vec with negative samples: two embeddings, an einsum of each row, Adam on sparse gradients."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 8
VOCAB = 25
keras.utils.set_random_seed(68)


class Word2Vec(keras.Model):
    def __init__(self, vocab_size, embedding_dim):
        super().__init__()
        self.target_embedding = layers.Embedding(vocab_size, embedding_dim, name="w2v_embedding")
        self.context_embedding = layers.Embedding(vocab_size, embedding_dim)

    def call(self, pair):
        target, context = pair
        if len(target.shape) == 2:
            target = ops.squeeze(target, axis=1)
        word_emb = self.target_embedding(target)
        context_emb = self.context_embedding(context)
        return ops.einsum("be,bce->bc", word_emb, context_emb)


rng = np.random.default_rng(0)
targets, contexts = rng.integers(0, VOCAB, (44, 1)), rng.integers(0, VOCAB, (44, 4))
labels = np.eye(4, dtype="float32")[np.zeros(44, "int64")]
dataset = tf.data.Dataset.from_tensor_slices(((targets, contexts), labels)).batch(BATCH)
word2vec = Word2Vec(VOCAB, 6)
word2vec.compile(optimizer="adam", loss=keras.losses.CategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
history = word2vec.fit(dataset, epochs=2)
vectors = word2vec.target_embedding.get_weights()[0]

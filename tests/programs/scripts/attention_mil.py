"""Multiple-instance learning: a list of inputs is a bag, attention over it, class weights, a generator of batches."""

import keras
import numpy as np
from keras import layers, ops

BATCH = 8
BAG_SIZE = 3
keras.utils.set_random_seed(69)


class MILAttentionLayer(layers.Layer):
    def __init__(self, weight_params_dim):
        super().__init__()
        self.weight_params_dim = weight_params_dim

    def build(self, input_shape):
        input_dim = input_shape[0][1]
        self.v_weight_params = self.add_weight(shape=(input_dim, self.weight_params_dim), name="v")
        self.w_weight_params = self.add_weight(shape=(self.weight_params_dim, 1), name="w")

    def call(self, inputs):
        scores = [ops.matmul(ops.tanh(ops.matmul(x, self.v_weight_params)), self.w_weight_params) for x in inputs]
        alpha = ops.softmax(ops.convert_to_tensor(scores), axis=0)
        return [alpha[i] for i in range(alpha.shape[0])]


inputs, embeddings = [], []
shared_dense = layers.Dense(6, activation="tanh")
for _ in range(BAG_SIZE):
    inp = layers.Input((5,))
    inputs.append(inp)
    embeddings.append(shared_dense(inp))
alpha = MILAttentionLayer(4)(embeddings)
multiplied = [layers.multiply([alpha[i], embeddings[i]]) for i in range(len(alpha))]
output = layers.Dense(2, activation="softmax")(layers.concatenate(multiplied, axis=1))
model = keras.Model(inputs, output)
model.compile(optimizer=keras.optimizers.Adam(1e-2), loss="sparse_categorical_crossentropy", metrics=["accuracy"])

rng = np.random.default_rng(0)
bags, labels = rng.normal(size=(BAG_SIZE, 28, 5)).astype("float32"), rng.integers(0, 2, 28)


def batches():
    for start in range(0, 20, BATCH):
        rows = slice(start, min(start + BATCH, 20))
        yield tuple(bag[rows] for bag in bags), labels[rows]


# With the number of steps: without it, Keras counts one more when a generator ends, on one device too.
history = model.fit(batches(), epochs=1, steps_per_epoch=3)
array_history = model.fit(
    list(bags[:, :20]), labels[:20], batch_size=BATCH, epochs=1, shuffle=False, class_weight={0: 0.8, 1: 1.3}
)
intermediate_model = keras.Model(model.input, alpha)
attention_weights = intermediate_model.predict(list(bags))

"""The endpoint layer pattern: a loss that a layer holds, with weights of its own, and compile without a loss."""

import keras
import numpy as np
from keras import layers

BATCH = 8
keras.utils.set_random_seed(31)


class LogisticEndpoint(layers.Layer):
    def __init__(self, name=None):
        super().__init__(name=name)
        self.loss_fn = keras.losses.BinaryCrossentropy(from_logits=True)
        self.accuracy_metric = keras.metrics.BinaryAccuracy(name="accuracy")

    def call(self, logits, targets=None, sample_weight=None):
        if targets is not None:
            self.add_loss(self.loss_fn(targets, logits, sample_weight))
            self.accuracy_metric.update_state(targets, logits, sample_weight)
        return keras.ops.sigmoid(logits)


inputs = keras.Input((3,), name="inputs")
targets = keras.Input((1,), name="targets")
logits = layers.Dense(1)(layers.Dense(6, activation="tanh")(inputs))
endpoint = LogisticEndpoint(name="predictions")
training_model = keras.Model({"inputs": inputs, "targets": targets}, endpoint(logits, targets))
training_model.compile(optimizer=keras.optimizers.SGD(0.1))
inference_model = keras.Model(inputs, endpoint(logits))

rng = np.random.default_rng(0)
data = {
    "inputs": rng.normal(size=(44, 3)).astype("float32"),
    "targets": rng.integers(0, 2, (44, 1)).astype("float32"),
}
history = training_model.fit(data, batch_size=BATCH, epochs=3, shuffle=False)
predictions = inference_model.predict(data["inputs"])

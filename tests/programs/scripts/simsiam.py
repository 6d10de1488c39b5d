"""SimSiam: encoder and predictor without call, a stop-gradient, then a linear classifier on the frozen encoder."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 8
keras.utils.set_random_seed(19)


def compute_loss(p, z):
    z = ops.stop_gradient(z)
    p = ops.normalize(p, axis=1, order=2)
    z = ops.normalize(z, axis=1, order=2)
    return -ops.mean(ops.sum(p * z, axis=1))


class SimSiam(keras.Model):
    def __init__(self, encoder, predictor):
        super().__init__()
        self.encoder = encoder
        self.predictor = predictor
        self.loss_tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.loss_tracker]

    def train_step(self, data):
        ds_one, ds_two = data
        with tf.GradientTape() as tape:
            z1, z2 = self.encoder(ds_one, training=True), self.encoder(ds_two, training=True)
            p1, p2 = self.predictor(z1, training=True), self.predictor(z2, training=True)
            loss = compute_loss(p1, z2) / 2 + compute_loss(p2, z1) / 2
        learnable_params = self.encoder.trainable_variables + self.predictor.trainable_variables
        gradients = tape.gradient(loss, learnable_params)
        self.optimizer.apply_gradients(zip(gradients, learnable_params))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}


encoder = keras.Sequential(
    [keras.Input((6,)), layers.Dense(8), layers.BatchNormalization(), layers.Dense(5)], name="encoder"
)
predictor = keras.Sequential([keras.Input((5,)), layers.Dense(4, activation="tanh"), layers.Dense(5)], name="predictor")
rng = np.random.default_rng(0)
rows = rng.normal(size=(20, 6)).astype("float32")
augmented_one, augmented_two = (rows + 0.1 * rng.normal(size=(2, 20, 6))).astype("float32")
ssl_ds = tf.data.Dataset.zip(
    (
        tf.data.Dataset.from_tensor_slices(augmented_one).batch(BATCH),
        tf.data.Dataset.from_tensor_slices(augmented_two).batch(BATCH),
    )
)
lr_decayed_fn = keras.optimizers.schedules.CosineDecay(initial_learning_rate=0.03, decay_steps=6)
simsiam = SimSiam(encoder, predictor)
simsiam.compile(optimizer=keras.optimizers.SGD(lr_decayed_fn, momentum=0.6))
history = simsiam.fit(ssl_ds, epochs=2)

backbone = keras.Model(simsiam.encoder.inputs, simsiam.encoder.layers[-2].output)
backbone.trainable = False
inputs = layers.Input((6,))
linear_model = keras.Model(inputs, layers.Dense(2, activation="softmax")(backbone(inputs, training=False)))
linear_model.compile(loss="sparse_categorical_crossentropy", metrics=["accuracy"], optimizer=keras.optimizers.SGD(0.1))
linear_history = linear_model.fit(rows, (rows[:, 0] > 0).astype("int32"), batch_size=BATCH, epochs=2, shuffle=False)

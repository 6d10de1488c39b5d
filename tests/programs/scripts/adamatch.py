"""AdaMatch: four pictures zipped of two domains, thresholds and ratios of the whole batch, a ramp by a step counter."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 12
WORKERS = True
RANDOM = True
keras.utils.set_random_seed(42)


def compute_loss_source(source_labels, logits_source_w, logits_source_s):
    loss_func = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    w_loss = loss_func(source_labels, logits_source_w)
    s_loss = loss_func(source_labels, logits_source_s)
    return w_loss + s_loss


def compute_loss_target(target_pseudo_labels_w, logits_target_s, mask):
    loss_func = keras.losses.CategoricalCrossentropy(from_logits=True, reduction="none")
    target_pseudo_labels_w = tf.stop_gradient(target_pseudo_labels_w)
    target_loss = loss_func(target_pseudo_labels_w, logits_target_s)
    mask = tf.cast(mask, target_loss.dtype)
    target_loss *= mask
    return tf.reduce_mean(target_loss, 0)


class AdaMatch(keras.Model):
    def __init__(self, model, total_steps, tau=0.9):
        super().__init__()
        self.model = model
        self.tau = tau
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.total_steps = total_steps
        self.current_step = tf.Variable(0, dtype="int64")

    @property
    def metrics(self):
        return [self.loss_tracker]

    def compute_mu(self):
        pi = tf.constant(np.pi, dtype="float32")
        step = tf.cast(self.current_step, dtype="float32")
        return 0.5 - tf.cos(tf.math.minimum(pi, (2 * pi * step) / self.total_steps)) / 2

    def train_step(self, data):
        source_ds, target_ds = data
        (source_w, source_labels), (source_s, _) = source_ds
        ((target_w, _), (target_s, _)) = target_ds
        combined_images = tf.concat([source_w, source_s, target_w, target_s], 0)
        combined_source = tf.concat([source_w, source_s], 0)
        total_source = tf.shape(combined_source)[0]
        with tf.GradientTape() as tape:
            combined_logits = self.model(combined_images, training=True)
            z_d_prime_source = self.model(combined_source, training=False)
            z_prime_source = combined_logits[:total_source]
            lambd = tf.random.uniform((total_source, 10), 0, 1)
            final_source_logits = (lambd * z_prime_source) + ((1 - lambd) * z_d_prime_source)
            y_hat_source_w = tf.nn.softmax(final_source_logits[: tf.shape(source_w)[0]])
            logits_target = combined_logits[total_source:]
            logits_target_w = logits_target[: tf.shape(target_w)[0]]
            logits_target_s = logits_target[tf.shape(target_w)[0] :]
            y_hat_target_w = tf.nn.softmax(logits_target_w)
            expectation_ratio = tf.reduce_mean(y_hat_source_w) / tf.reduce_mean(y_hat_target_w)
            y_tilde_target_w = tf.math.l2_normalize(y_hat_target_w * expectation_ratio, 1)
            row_wise_max = tf.reduce_max(y_hat_source_w, axis=-1)
            final_sum = tf.reduce_mean(row_wise_max, 0)
            c_tau = self.tau * final_sum
            mask = tf.reduce_max(y_tilde_target_w, axis=-1) >= c_tau
            source_loss = compute_loss_source(
                source_labels,
                final_source_logits[: tf.shape(source_w)[0]],
                final_source_logits[tf.shape(source_w)[0] :],
            )
            target_loss = compute_loss_target(y_tilde_target_w, logits_target_s, mask)
            t = self.compute_mu()
            total_loss = source_loss + (t * target_loss)
            self.current_step.assign_add(1)
        gradients = tape.gradient(total_loss, self.model.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables))
        self.loss_tracker.update_state(total_loss)
        return {"loss": self.loss_tracker.result()}


def get_network():
    inputs = keras.Input((8, 8, 1))
    x = layers.Conv2D(4, 3, padding="same", kernel_regularizer=keras.regularizers.L2(5e-4))(inputs)
    x = layers.BatchNormalization()(x)
    x = layers.Activation("relu")(x)
    x = layers.GlobalAvgPool2D()(x)
    return keras.Model(inputs, layers.Dense(10)(x))


rng = np.random.default_rng(0)
x1, y1 = rng.uniform(size=(50, 8, 8, 1)).astype("float32"), rng.integers(0, 10, 50)
x2, y2 = rng.uniform(size=(50, 8, 8, 1)).astype("float32") * 0.7, rng.integers(0, 10, 50)


def weak(x, y):
    return x, y


def strong(x, y):
    return 1.2 * x - 0.1, y


def create_pair(x, y):
    base = tf.data.Dataset.from_tensor_slices((x, y))
    return tf.data.Dataset.zip((base.batch(BATCH).map(weak), base.batch(BATCH).map(strong)))


final_source_ds, final_target_ds = create_pair(x1, y1), create_pair(x2, y2)
total_ds = tf.data.Dataset.zip((final_source_ds, final_target_ds))
adamatch_trainer = AdaMatch(model=get_network(), total_steps=10)
adamatch_trainer.compile(optimizer=keras.optimizers.Adam(learning_rate=0.03))
history = adamatch_trainer.fit(total_ds, epochs=2)
adamatch_trained_model = adamatch_trainer.model
adamatch_trained_model.compile(metrics=[keras.metrics.SparseCategoricalAccuracy()])
scores = adamatch_trained_model.evaluate(tf.data.Dataset.from_tensor_slices((x2, y2)).batch(BATCH))

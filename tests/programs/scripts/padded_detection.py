"""A one-stage detector: boxes of a generator in padded batches of one size, a loss by the positives of each picture."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH = 6
WORKERS = True
keras.utils.set_random_seed(30)
centres = np.stack(np.meshgrid(np.arange(4) * 2 + 1.0, np.arange(4) * 2 + 1.0), -1).reshape(-1, 2)
anchors = tf.constant(np.concatenate([centres - 1.5, centres + 1.5], 1), "float32")


def pictures():
    rng = np.random.default_rng(1)
    for _ in range(20):
        boxes = int(rng.integers(1, 4))
        corners = rng.uniform(0, 5, (boxes, 2))
        sides = rng.uniform(2, 4, (boxes, 2))
        yield rng.uniform(size=(8, 8, 1)), np.concatenate([corners, corners + sides], 1), rng.integers(0, 3, boxes)


def encode(picture, boxes, classes):
    low = tf.maximum(anchors[None, :, None, :2], boxes[:, None, :, :2])
    high = tf.minimum(anchors[None, :, None, 2:], boxes[:, None, :, 2:])
    shared = tf.reduce_prod(tf.maximum(high - low, 0.0), -1)
    area = tf.reduce_prod(boxes[..., 2:] - boxes[..., :2], -1)[:, None]
    overlap = shared / (area + 9.0 - shared)
    best = tf.argmax(overlap, -1)
    positive = tf.cast(tf.reduce_max(overlap, -1) > 0.25, "float32")
    wanted = tf.gather(boxes, best, batch_dims=1) - anchors
    return picture, tf.concat([wanted, tf.gather(classes, best, batch_dims=1)[..., None], positive[..., None]], -1)


class DetectionLoss(keras.losses.Loss):
    def call(self, y_true, y_pred):
        wanted, classes, positive = y_true[..., :4], tf.cast(y_true[..., 4], "int32"), y_true[..., 5]
        hot = tf.one_hot(classes, 3, dtype=y_pred.dtype) * positive[..., None]
        focal = keras.losses.binary_focal_crossentropy(hot[..., None], y_pred[..., 4:, None], from_logits=True)
        focal = tf.reduce_sum(focal, -1)
        box = tf.reduce_sum(tf.abs(wanted - y_pred[..., :4]), -1) * positive
        return tf.math.divide_no_nan(tf.reduce_sum(focal + box, -1), tf.reduce_sum(positive, -1))


inputs = keras.Input((8, 8, 1))
features = layers.Conv2D(6, 3, activation="relu")(layers.Conv2D(4, 3, 2, "same", activation="relu")(inputs))
features = layers.Conv2DTranspose(6, 3, activation="relu")(features)
heads = [layers.Reshape((16, size))(layers.Conv2D(size, 3, padding="same")(features)) for size in (4, 3)]
model = keras.Model(inputs, layers.Concatenate()(heads))
model.compile(keras.optimizers.SGD(0.01, momentum=0.9), DetectionLoss())
spec = tf.TensorSpec((8, 8, 1), "float32"), tf.TensorSpec((None, 4), "float32"), tf.TensorSpec((None,), "float32")
data = tf.data.Dataset.from_generator(pictures, output_signature=spec)
data = data.padded_batch(BATCH, drop_remainder=True).map(encode, num_parallel_calls=tf.data.AUTOTUNE).prefetch(2)
history = model.fit(data, validation_data=data, epochs=2)

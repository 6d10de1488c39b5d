"""A YOLO-like loss: sums over cells, divided by the batch and by the objects in all of it; two outputs by name."""

import keras
import numpy as np
from keras import layers, ops

BATCH = 8
WORKERS = True
keras.utils.set_random_seed(31)
rng = np.random.default_rng(0)


def yolo_loss(y_true, y_pred):
    object_mask = y_true[..., 4:5]
    xy, wh = y_pred[..., :2], y_pred[..., 2:4]
    box_scale = 2 - y_true[..., 2:3] * y_true[..., 3:4]
    mf = ops.cast(ops.shape(y_true)[0], "float32")
    xy_loss = ops.sum(object_mask * box_scale * ops.square(y_true[..., :2] - xy)) / mf
    wh_loss = ops.sum(object_mask * box_scale * 0.5 * ops.square(y_true[..., 2:4] - wh)) / mf
    confidence = keras.losses.binary_crossentropy(object_mask, y_pred[..., 4:5], from_logits=True)[..., None]
    ignore = ops.cast(ops.max(y_pred[..., 5:], axis=-1, keepdims=True) < 0.5, "float32")
    confidence_loss = ops.sum(object_mask * confidence + (1 - object_mask) * confidence * ignore) / mf
    class_loss = ops.sum(object_mask * ops.square(y_true[..., 5:] - y_pred[..., 5:])) / (ops.sum(object_mask) + 1e-6)
    return xy_loss + wh_loss + confidence_loss + class_loss


inputs = keras.Input((8, 8, 1))
x = layers.Conv2D(6, 3, strides=2, padding="same", use_bias=False)(inputs)
x = layers.LeakyReLU(negative_slope=0.1)(layers.BatchNormalization()(x))
coarse = layers.Conv2D(8, 1, name="coarse")(layers.MaxPooling2D()(x))
fine = layers.Conv2D(8, 1, name="fine")(x)
model = keras.Model(inputs, {"coarse": coarse, "fine": fine})
model.compile(
    keras.optimizers.Adam(0.01),
    loss={"coarse": yolo_loss, "fine": yolo_loss},
    loss_weights={"coarse": 1.0, "fine": 0.5},
)


def labels(size):
    y = rng.uniform(size=(44, size, size, 8)).astype("float32")
    y[..., 4] = rng.uniform(size=y.shape[:-1]) > 0.7
    return y


x, y = rng.uniform(size=(44, 8, 8, 1)).astype("float32"), {"coarse": labels(2), "fine": labels(4)}
history = model.fit(
    x, y, batch_size=BATCH, epochs=2, shuffle=False, validation_data=(x[:13], {k: v[:13] for k, v in y.items()})
)
scores = model.evaluate(x, y, batch_size=BATCH, return_dict=True)

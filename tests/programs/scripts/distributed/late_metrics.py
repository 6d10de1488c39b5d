"""Metrics that make their variables in the first step of a loop by hand, whose optimizer is built before."""

import keras
import numpy as np
import tensorflow as tf

BATCH = 16
strategy = tf.distribute.MirroredStrategy()
keras.utils.set_random_seed(503)
rng = np.random.default_rng(0)
x, y = rng.normal(size=(50, 5)).astype("float32"), rng.integers(0, 3, 50)
w = rng.uniform(0, 2, 50).astype("float32")

data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x, (y, w))).batch(BATCH))
with strategy.scope():
    model = keras.Sequential(
        [keras.Input((5,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3, activation="softmax")]
    )
    optimizer = keras.optimizers.Adam(0.02)
    optimizer.build(model.trainable_variables)
    metrics = {
        "auc": keras.metrics.AUC(num_thresholds=20),
        "iou": keras.metrics.MeanIoU(3),
        "rmse": keras.metrics.RootMeanSquaredError(),
        "f1": keras.metrics.F1Score(average="macro"),
        "top": keras.metrics.SparseTopKCategoricalAccuracy(2),
        "sum": keras.metrics.Sum(),
        "mean": keras.metrics.Mean(),
        "recall": keras.metrics.Recall(class_id=1),
        "r2": keras.metrics.R2Score(),
        "tensor": keras.metrics.MeanMetricWrapper(keras.losses.sparse_categorical_crossentropy),
    }


def step(batch):
    features, (labels, weights) = batch
    with tf.GradientTape() as tape:
        p = model(features, training=True)
        per_example = keras.losses.sparse_categorical_crossentropy(labels, p) * weights
        loss = tf.nn.compute_average_loss(per_example, global_batch_size=BATCH)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    onehot = tf.one_hot(labels, 3)
    metrics["auc"].update_state(onehot, p)
    metrics["iou"].update_state(labels, tf.argmax(p, -1), sample_weight=weights)
    metrics["rmse"].update_state(onehot, p, sample_weight=weights)
    metrics["f1"].update_state(onehot, p)
    metrics["top"].update_state(labels, p, weights)
    metrics["sum"].update_state(per_example)
    metrics["mean"].update_state(per_example, weights)
    metrics["recall"].update_state(onehot, p)
    metrics["r2"].update_state(onehot, p)
    metrics["tensor"].update_state(labels, p, sample_weight=weights)
    return loss


@tf.function
def on(batch):
    return strategy.reduce("SUM", strategy.run(step, args=(batch,)), axis=None)


losses, results = [], []
for epoch in range(2):
    for _batch in data:
        losses.append(float(on(_batch)))
        results.append([float(m.result()) for m in metrics.values()])
    for m in metrics.values():
        m.reset_state()

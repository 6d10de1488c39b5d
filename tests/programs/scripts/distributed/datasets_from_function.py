"""`fit` on what `strategy.distribute_datasets_from_function` returns, which is batched per replica by the script."""

import keras
import numpy as np
import tensorflow as tf

BATCH = 6
MAY_BE_REFUSED = True
strategy = tf.distribute.MirroredStrategy()
keras.utils.set_random_seed(110)

rng = np.random.default_rng(0)
x, y = rng.normal(size=(24, 5)).astype("float32"), rng.integers(0, 3, 24)


def dataset_fn(context):
    batch_size = context.get_per_replica_batch_size(BATCH)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat()
    dataset = dataset.shard(context.num_input_pipelines, context.input_pipeline_id)
    return dataset.batch(batch_size)


with strategy.scope():
    model = keras.Sequential(
        [keras.Input((5,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3, activation="softmax")]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
train = strategy.distribute_datasets_from_function(dataset_fn)
history = model.fit(train, epochs=2, steps_per_epoch=4)

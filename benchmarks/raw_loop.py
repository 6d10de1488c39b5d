"""The contenders without `fit`: a training loop on plain tf.distribute, written as well as we can.

Each worker reads its own share in per-replica batches, so nothing is rebatched; the data never end,
so no collective asks whether they have; the loss is divided once by the global batch; the gradients
of a step travel in one pack; the metrics stay local until the epoch ends; a call takes as many
steps as asked. It comes with two inputs: the one that TensorFlow's guides teach
(`distribute_datasets_from_function`), and a plain `tf.data` iterator per worker, which is enough
for one replica per worker and takes milliseconds less per step.
"""

from __future__ import annotations

import keras
import tensorflow as tf

from benchmarks import models
from benchmarks.contenders import PER_REPLICA_BATCH, Contender
from benchmarks.fitting import Block
from benchmarks.loop_clock import clocked


def make_block(contender: Contender, model_name: str) -> Block:
    """Builds the loop, ready to train."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = models.build(model_name, keras)
        optimizer = models.make_optimizer(keras)
        optimizer.build(model.trainable_variables)
        loss_of = models.make_loss(keras, reduction="none")
        mean_loss = keras.metrics.Mean()
        accuracy = keras.metrics.SparseCategoricalAccuracy()
    if contender.library == "raw":
        iterator = iter(strategy.distribute_datasets_from_function(_share))
    else:
        rank = strategy.cluster_resolver.task_id
        iterator = iter(_share(tf.distribute.InputContext(contender.num_workers, rank)))

    def train_step(batch: tuple[tf.Tensor, tf.Tensor]) -> None:
        x, y = batch
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            losses = loss_of(y, logits)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=contender.global_batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        mean_loss.update_state(losses)
        accuracy.update_state(y, logits)

    @tf.function
    def train_steps(iterator: tf.distribute.DistributedIterator | tf.data.Iterator) -> None:
        if contender.steps_per_call == 1:
            strategy.run(train_step, args=(next(iterator),))
        else:
            for _ in tf.range(contender.steps_per_call):
                strategy.run(train_step, args=(next(iterator),))

    def epoch(steps: int) -> float:
        mean_loss.reset_state()
        accuracy.reset_state()
        for _ in range(0, steps, contender.steps_per_call):
            train_steps(iterator)
        accuracy.result().numpy()
        return float(mean_loss.result())

    return clocked(epoch)


def _share(context: tf.distribute.InputContext) -> tf.data.Dataset:
    return models.dataset(
        PER_REPLICA_BATCH,
        rank=context.input_pipeline_id,
        num_workers=context.num_input_pipelines,
    )

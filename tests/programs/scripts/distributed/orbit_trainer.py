"""Orbit's trainer and evaluator: a `tf.function` with a loop over steps, metrics reset in `train_loop_begin`."""

import keras
import numpy as np
import tensorflow as tf

BATCH = 16
strategy = tf.distribute.MirroredStrategy()
keras.utils.set_random_seed(3)


def create_loop_fn(step_fn):
    def loop_fn(iterator, num_steps):
        if not isinstance(num_steps, tf.Tensor):
            raise ValueError
        for _ in tf.range(num_steps):
            step_fn(iterator)

    return loop_fn


class StandardTrainer(tf.Module):
    def __init__(self, train_dataset):
        super().__init__()
        self._train_dataset, self._train_iter, self._train_loop_fn = train_dataset, None, None

    def train_loop_begin(self):
        pass

    def train_loop_end(self):
        pass

    def train(self, num_steps):
        self.train_loop_begin()
        if self._train_loop_fn is None:
            self._train_loop_fn = tf.function(create_loop_fn(self.train_step))
        if self._train_iter is None:
            self._train_iter = iter(self._train_dataset)
        self._train_loop_fn(self._train_iter, num_steps)
        return self.train_loop_end()


class Trainer(StandardTrainer):
    def __init__(self, train_dataset, eval_dataset, model, optimizer):
        super().__init__(train_dataset)
        self.strategy = tf.distribute.get_strategy()
        self.model, self.optimizer, self.eval_dataset = model, optimizer, eval_dataset
        self.global_step = optimizer.iterations
        self.train_loss = keras.metrics.Mean("training_loss")
        self.acc = keras.metrics.SparseCategoricalAccuracy("acc")
        self.eval_loss = keras.metrics.Mean("eval_loss")

    def train_loop_begin(self):
        self.train_loss.reset_state()
        self.acc.reset_state()

    def train_step(self, iterator):
        def step_fn(inputs):
            features, targets = inputs
            with tf.GradientTape() as tape:
                predictions = self.model(features, training=True)
                losses = keras.losses.sparse_categorical_crossentropy(targets, predictions, from_logits=True)
                loss = tf.reduce_mean(losses)
                scaled = loss / self.strategy.num_replicas_in_sync
            grads = tape.gradient(scaled, self.model.trainable_variables)
            self.optimizer.apply_gradients(zip(grads, self.model.trainable_variables))
            self.train_loss.update_state(losses)
            self.acc.update_state(targets, predictions)

        self.strategy.run(step_fn, args=(next(iterator),))

    def train_loop_end(self):
        return {"loss": self.train_loss.result(), "acc": self.acc.result(), "rate": self.optimizer.learning_rate}

    def run_eval(self):
        self.eval_loss.reset_state()
        it = iter(self.eval_dataset)

        @tf.function
        def run(iterator):
            for _ in tf.range(2):
                self.strategy.run(self.eval_step, args=(next(iterator),))

        run(it)
        return {"eval_loss": self.eval_loss.result()}

    def eval_step(self, inputs):
        features, targets = inputs
        predictions = self.model(features, training=False)
        self.eval_loss.update_state(
            keras.losses.sparse_categorical_crossentropy(targets, predictions, from_logits=True)
        )


def train_data(ctx=None):
    return tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(BATCH)


rng = np.random.default_rng(0)
x, y = rng.normal(size=(50, 5)).astype("float32"), rng.integers(0, 3, 50)
with strategy.scope():
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3)])
    optimizer = keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.02, 3, 0.9))
    trainer = Trainer(
        strategy.experimental_distribute_dataset(train_data()),
        strategy.experimental_distribute_dataset(train_data()),
        model,
        optimizer,
    )
logs = []
for epoch in range(3):
    logs.append({k: float(v) for k, v in trainer.train(tf.constant(3)).items()})
    logs.append({k: float(v) for k, v in trainer.run_eval().items()})

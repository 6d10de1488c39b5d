"""Scripts as users write them, without a word of tfscale."""

import os
import time

import keras
import numpy as np
import tensorflow as tf

LAYERS = keras.layers


def convnet():
    """BatchNormalization over all rows, clipping of the whole gradient, dropout."""
    model = keras.Sequential(
        [
            keras.Input((6, 6, 1)),
            LAYERS.Conv2D(4, 3, use_bias=False),
            LAYERS.BatchNormalization(),
            LAYERS.ReLU(),
            LAYERS.Flatten(),
            LAYERS.Dropout(0.5),
            LAYERS.Dense(3, activation="softmax"),
        ]
    )
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9, clipnorm=0.3)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def images():
    """An uneven last batch, 10 of 24, and a shuffle that only `verify` seeds."""
    x = np.random.normal(size=(82, 6, 6, 1)).astype("float32")
    y = np.random.randint(0, 3, 82)
    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(82).batch(24)


def amplifying():
    """What rounding changes in a weight is many times as large after the next step."""
    model = keras.Sequential(
        [
            keras.Input((6, 6, 1)),
            LAYERS.Flatten(),
            LAYERS.Dense(8),
            LAYERS.Lambda(lambda x: keras.ops.sin(30 * x)),
            LAYERS.Dense(3),
        ]
    )
    model.compile(keras.optimizers.SGD(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def amplifying_in_float32():
    """The same, of a script that says its type itself."""
    keras.config.set_floatx("float32")
    return amplifying()


def biased_convnet():
    """A bias in front of BatchNormalization: its gradient is nothing but rounding."""
    model = keras.Sequential(
        [keras.Input((6, 6, 1)), LAYERS.Conv2D(4, 3), LAYERS.BatchNormalization(), LAYERS.Flatten(), LAYERS.Dense(3)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss)
    return model


def biased_dense_with_adam():
    """Adam makes steps of what is nothing but rounding in the gradient of the first bias."""
    model = keras.Sequential(
        [keras.Input((20,)), LAYERS.Dense(32), LAYERS.BatchNormalization(), LAYERS.ReLU(), LAYERS.Dense(10)]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def many_rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(1000, 20)).astype("float32"), rng.integers(0, 10, 1000)


class SumOfPairs(keras.Model):
    """Its own `train_step` has a loss over pairs of examples, which no replica sees all of."""

    def __init__(self):
        super().__init__()
        self.dense = LAYERS.Dense(2)

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            out = self(x, training=True)
            gap = out[:, None] - out[None, :]
            loss = tf.reduce_mean(tf.square(out - y)) + tf.reduce_mean(tf.square(gap))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


def pairs(**options):
    model = SumOfPairs()
    model.compile(keras.optimizers.SGD(0.1), "mse", **options)
    return model


def pairs_eagerly():
    return pairs(run_eagerly=True)


class Autoencoder(keras.Model):
    """Without `call`, `test_step` and a loss: its layers are built by its step."""

    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential([keras.layers.Dense(3, activation="tanh")])
        self.decoder = keras.Sequential([keras.layers.Dense(4)])

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.decoder(self.encoder(data)) - data))
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss}


class Asking(Autoencoder):
    """Cannot be traced."""

    def train_step(self, data):
        logs = super().train_step(data)
        return {"loss": float(logs["loss"].numpy())}


def without_call():
    model = Autoencoder()
    model.compile("adam")
    return model


def not_to_be_traced():
    model = Asking()
    model.compile("adam", run_eagerly=True)
    return model


def unlabelled():
    return {"x": np.random.normal(size=(50, 4)).astype("float32"), "batch_size": 24}


def rows():
    return {
        "x": np.random.normal(size=(40, 3)).astype("float32"),
        "y": np.random.normal(size=(40, 2)).astype("float32"),
        "batch_size": 16,
    }


def told_images():
    """`images`; which process asks, and which has started that one, is written down."""
    with open(os.environ["PROCESSES_FILE"], "a") as file:
        print(os.getpid(), os.getppid(), file=file)
    return images()


def not_compiled():
    return keras.Sequential([keras.Input((3,)), LAYERS.Dense(2)])


def diverging():
    model = not_compiled()
    model.compile(keras.optimizers.SGD(1e30), "mse")
    return model


def failing():
    raise KeyError("on purpose")


def sleeping():
    time.sleep(600)


def dying():
    print("last words", flush=True)
    os._exit(7)


def drawing():
    """Draws in training, normalises batches, and clips the whole gradient."""
    model = keras.Sequential(
        [
            keras.Input((6, 6, 1)),
            LAYERS.RandomTranslation(0.2, 0.2),
            LAYERS.Conv2D(4, 3),
            LAYERS.BatchNormalization(),
            LAYERS.Flatten(),
            LAYERS.Dropout(0.5),
            LAYERS.Dense(3, activation="softmax"),
        ]
    )
    optimizer = keras.optimizers.Adam(0.01, clipnorm=0.3)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


class CountingDevices(LAYERS.Layer):
    """Is another one on two devices, in its last bits."""

    def __init__(self):
        super().__init__(name="counting_devices")

    def call(self, x):
        return x * (1.0 + 2.0**-23 * len(tf.config.list_logical_devices("CPU")))


class FromNobody(LAYERS.Layer):
    """Adds what no seed determines."""

    def __init__(self):
        super().__init__(name="from_nobody")
        self.shift = float(np.random.default_rng().normal())

    def call(self, x):
        return x + self.shift


def _dense(*layers, **options):
    model = keras.Sequential([keras.Input((3,)), *layers, LAYERS.Dropout(0.1), LAYERS.Dense(2, name="dense")])
    model.compile(**{"optimizer": keras.optimizers.SGD(0.1, momentum=0.9), "loss": "mse", **options})
    return model


def counting_devices():
    return _dense(CountingDevices())


class RootOfMean(LAYERS.Layer):
    """Its loss is neither a mean nor a sum over rows: one of two logical replicas is not that of one."""

    def call(self, x):
        self.add_loss(keras.ops.sqrt(keras.ops.mean(keras.ops.square(x))))
        return x


def unlike_one_replica():
    return _dense(LAYERS.Dense(3, name="first"), RootOfMean())


def mixing():
    return _dense(LAYERS.Lambda(lambda x: x - keras.ops.mean(x, axis=0)))


def from_nobody():
    return _dense(FromNobody())


def unseeded_weights():
    return _dense(
        LAYERS.Dense(3, name="first", kernel_initializer=keras.initializers.Constant(np.random.default_rng().normal()))
    )


def accumulating():
    return _dense(optimizer=keras.optimizers.SGD(0.1, gradient_accumulation_steps=2))


def eagerly():
    return _dense(run_eagerly=True)


def unseeded_rows():
    rows = np.random.default_rng().normal(size=(20, 3)).astype("float32")
    return tf.data.Dataset.from_tensor_slices((rows, rows[:, :2])).batch(16)


class NotBuilt(keras.Model):
    """Is built by its first batch."""

    def __init__(self):
        super().__init__()
        self.dropout, self.dense = LAYERS.Dropout(0.5), LAYERS.Dense(2)

    def call(self, x, training=False):
        return self.dense(self.dropout(x, training=training))


def not_built():
    model = NotBuilt()
    model.compile("adam", "mse")
    return model

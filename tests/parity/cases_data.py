"""What test_user_data.py does in a process with TensorFlow."""

import keras
import numpy as np
import tensorflow as tf

from tfscale import ParityError
from tfscale.parity.random_layers import switch_off_random_layers
from tfscale.parity.user_data import read_user_data


def _x(rows=10):
    return np.arange(rows * 2, dtype="float32").reshape(rows, 2)


class _Batches(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return _x(4 if index < 2 else 2), np.ones(4 if index < 2 else 2)


def _dataset(batch=4):
    return tf.data.Dataset.from_tensor_slices((_x(), np.ones(10))).batch(batch)


def _generator():
    yield _x(4), np.ones(4)
    yield _x(2), np.ones(2)


# Name: (what `data` returns, `global_batch`, expected (global batch, steps, sizes of batches)).
FORMS = {
    "arrays": (lambda: (_x(), np.ones(10)), None, (32, 1, (10,))),
    "arrays by batch": (lambda: (_x(), np.ones(10)), 4, (4, 3, (2, 4))),
    "even arrays": (lambda: (_x(), np.ones(10)), 5, (5, 2, (5,))),
    "weights": (lambda: (_x(), np.ones(10), np.ones(10)), 5, (5, 2, (5,))),
    "x alone": (_x, 5, (5, 2, (5,))),
    "several inputs": (lambda: ([_x(), _x()], np.ones(10)), 5, (5, 2, (5,))),
    "dict of inputs": (lambda: ({"a": _x(), "b": _x()}, np.ones(10)), 5, (5, 2, (5,))),
    "arguments": (lambda: {"x": _x(), "y": np.ones(10), "batch_size": 4}, None, (4, 3, (2, 4))),
    "validation split": (lambda: {"x": _x(), "y": np.ones(10), "validation_split": 0.2}, 4, (4, 2, (4,))),
    "dataset": (_dataset, None, (4, 3, (2, 4))),
    "dataset of one batch": (lambda: _dataset(10), 16, (16, 1, (10,))),
    "dataset of unknown size": (lambda: _dataset().filter(lambda x, y: True), None, (4, 3, (2, 4))),
    "endless dataset": (lambda: {"x": _dataset(5).repeat(), "steps_per_epoch": 3}, None, (5, 3, (5,))),
    "PyDataset": (lambda: _Batches(), None, (4, 3, (2, 4))),
    "generator": (_generator, None, (4, 2, (2, 4))),
}

# Name: (what `data` returns, `global_batch`, part of the error).
REFUSED = {
    "nothing": (lambda: None, None, "Received: None."),
    "a number": (lambda: 3, None, "an object of type int"),
    "empty tuple": (lambda: (), None, "0 entries"),
    "long tuple": (lambda: (_x(),) * 4, None, "4 entries"),
    "no rows": (lambda: (_x(0), _x(0)), None, "at least one example"),
    "empty dataset": (lambda: _dataset().take(0), None, "at least one example"),
    "empty generator": (lambda: iter(()), None, "at least one example"),
    "endless": (lambda: _dataset().repeat(), None, "an infinite tf.data.Dataset"),
    "other batch": (_dataset, 8, "batches of the global batch (8).\nReceived: a batch of 4"),
    "smaller batch": (lambda: _dataset(10), 8, "Received: a batch of 10"),
    "other batch_size": (lambda: {"x": _x(), "batch_size": 4}, 8, "Received: a batch of 4"),
    "epochs": (lambda: {"x": _x(), "epochs": 2}, None, "give `epochs` to verify"),
    "shuffle": (lambda: {"x": _x(), "shuffle": True}, None, "must see the same order"),
}


def forms():
    found = {}
    for name, (function, batch, _) in FORMS.items():
        facts = read_user_data(function, seed=0, epochs=1, global_batch=batch).facts
        found[name] = (facts.global_batch, facts.num_steps, facts.batches)
    return found, {name: expected for name, (_, _, expected) in FORMS.items()}


def refused():
    messages = {}
    for name, (function, batch, _) in REFUSED.items():
        try:
            read_user_data(function, seed=0, epochs=1, global_batch=batch)
        except ParityError as error:
            messages[name] = str(error)
    return messages, {name: part for name, (_, _, part) in REFUSED.items()}


def digests():
    """Digests of: data, the same again, another order, other values, another seed, unseeded."""

    def digest(function, seed=0):
        return read_user_data(function, seed=seed, epochs=1, global_batch=None).facts.digest

    shuffled = lambda: _dataset(10).unbatch().shuffle(10).batch(10)  # noqa: E731
    drawn = lambda: np.random.normal(size=(10, 2))  # noqa: E731
    unseeded = lambda: np.random.default_rng().normal(size=(10, 2))  # noqa: E731
    return [
        digest(_x) == digest(_x),
        digest(_x) == digest(lambda: _x()[::-1].copy()),
        digest(_x) == digest(lambda: _x() + 1),
        digest(_x) == digest(lambda: _x().astype("float64")),
        digest(shuffled) == digest(shuffled),
        digest(shuffled) == digest(shuffled, seed=1),
        digest(drawn) == digest(drawn),
        digest(drawn) == digest(drawn, seed=1),
        digest(unseeded) == digest(unseeded),
    ]


def passes():
    """First value of each row in three passes over a shuffled dataset, and in two of another read."""

    def make():
        return tf.data.Dataset.range(50).shuffle(50).map(lambda i: i + tf.random.uniform([], 0, 9, tf.int64)).batch(50)

    def read():
        return read_user_data(make, seed=0, epochs=1, global_batch=None).for_fit()["x"]

    first, second = read(), read()
    return [next(iter(each)).numpy().tolist() for each in (first, first, first, second, second)]


def random_layers():
    """Names of the layers switched off and left on, and how far training is from inference then."""
    layers = keras.layers

    class Noise(keras.layers.Layer):
        def __init__(self):
            super().__init__(name="own_noise")
            self.generator = keras.random.SeedGenerator(1)

        def call(self, x):
            return x + 0 * keras.random.normal(keras.ops.shape(x), seed=self.generator)

    inner = keras.Sequential([layers.Dropout(0.5, name="inner")], name="nested")
    x = keras.Input((8, 8, 3))
    out = layers.RandomFlip(name="flip")(x)
    out = layers.RandomRotation(0.3, name="rotation")(out)
    out = layers.GaussianNoise(0.5, name="noise")(out)
    out = layers.GaussianDropout(0.5, name="gaussian")(out)
    out = layers.AlphaDropout(0.5, name="alpha")(out)
    out = layers.SpatialDropout2D(0.5, name="spatial")(out)
    out = layers.Dropout(0.0, name="idle")(out)
    out = layers.Reshape((8, 24))(inner(out))
    out = layers.MultiHeadAttention(2, 4, dropout=0.5, name="attention")(out, out)
    out = layers.LSTM(4, dropout=0.5, recurrent_dropout=0.3, return_sequences=True, name="lstm")(out)
    out = layers.GRU(4, name="gru")(out)
    model = keras.Model(x, Noise()(out))
    off, still_on = switch_off_random_layers(model)
    rows = np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype("float32")
    gap = np.abs(np.asarray(model(rows, training=True)) - np.asarray(model(rows, training=False))).max()
    return off, still_on, float(gap)


def everything():
    """All of the above in one process: TensorFlow takes seconds to start."""
    return {case.__name__: case() for case in (forms, refused, digests, passes, random_layers)}

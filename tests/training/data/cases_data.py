"""Runs with `dp.dataset`, on replicas and on workers. Every function runs in a process of its own."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.training.contract import observe_fit

GLOBAL_BATCH, EPOCHS = 10, 2
# The last batch has 3 rows.
X = np.random.default_rng(0).normal(size=(33, 5)).astype("float32")
IDS = np.arange(33)
Y = X.sum(axis=1, keepdims=True)


class Items(keras.utils.PyDataset):
    """Batches of 7, which no global batch is made of."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        rows = slice(7 * index, 7 * index + 7)
        return (X[rows], IDS[rows]), Y[rows]


def _sources(directory: str) -> dict[str, Any]:
    arrays = ((X, IDS), Y)
    on_disk = np.memmap(Path(directory, f"{os.getpid()}.bin"), "float32", "w+", shape=X.shape)
    on_disk[:] = X
    return {
        "arrays": arrays,
        "memmap": ((on_disk, IDS), Y),
        "stream": tf.data.Dataset.from_tensor_slices(arrays),
        "PyDataset": Items(),
    }


def run(num_replicas: int, directory: str, worker_load: Any = None) -> dict[str, Any]:
    """Every kind of source and order: what a model becomes, and which examples `map_fn` was called on here.

    Args:
        num_replicas: Logical CPUs; 0 where TF_CONFIG says who there is.
        directory: Of this process, for files.
        worker_load: As `dp.dataset`.
    """
    if num_replicas > 1:
        tfscale.simulate_replicas(num_replicas)
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH, seed=3)
    found: dict[str, Any] = {}
    for name, source in _sources(directory).items():
        for shuffle in (False, True):
            seen: list[int] = []
            data = dp.dataset(source, map_fn=_noting(seen), shuffle=shuffle, worker_load=worker_load)
            model = _model(dp)
            observed = observe_fit(model, {"x": data}, epochs=EPOCHS)
            mapped = list(seen)
            ordered = dp.dataset(source, map_fn=_noting([]), worker_load=worker_load)
            found[f"{name}, {'shuffled' if shuffle else 'in order'}"] = {
                "observed": observed,
                "mapped": mapped,
                "steps": len(data),
                "predict": model.predict(ordered, verbose=0),
                "evaluate": model.evaluate(dp.dataset(source, map_fn=_noting([])), verbose=0),
            }
    return found


def _noting(seen: list[int]) -> Any:
    """Notes on which example it is called, and adds noise that depends on the seed alone."""

    def note(example_id: np.ndarray) -> np.ndarray:
        seen.append(int(example_id))
        return example_id

    def map_fn(example: Any, seed: tf.Tensor) -> Any:
        (x, example_id), y = example
        noted = tf.ensure_shape(tf.numpy_function(note, [example_id], tf.int64), ())
        noise = tf.random.stateless_normal((5,), seed)
        return tf.ensure_shape(x, (5,)) + 0.1 * noise + 0.0 * tf.cast(noted, tf.float32), y

    return map_fn


def _model(dp: Any) -> keras.Model:
    keras.utils.set_random_seed(1)
    with dp.scope():
        model = dp.prepare(
            keras.Sequential([keras.Input((5,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)])
        )
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse", metrics=["mae"])
    return model


def orders(seed: int | None) -> dict[str, Any]:
    """The examples of three epochs, from the start and from the middle."""
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH, seed=seed, devices=1)
    found = {}
    for name, source in {"arrays": IDS, "stream": tf.data.Dataset.from_tensor_slices(IDS)}.items():
        data = dp.dataset(source, shuffle=True)
        epochs = [_examples(data) for _ in range(3)]
        data.start_at(1, 2)
        middle = _examples(data)
        following = _examples(data)
        found[name] = {"epochs": epochs, "middle": middle, "following": following}
    return found


def _examples(data: Any) -> list[list[int]]:
    return [batch.numpy().tolist() for batch in data]


def skipping() -> list[int]:
    """The examples that are mapped by a pass that starts at the last but one step."""
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH, devices=1)
    found = []
    for source in (((X, IDS), Y), tf.data.Dataset.from_tensor_slices(((X, IDS), Y))):
        seen: list[int] = []
        data = dp.dataset(source, map_fn=_noting(seen))
        data.start_at(0, 2)
        list(data)
        found.append(sorted(seen))
    return found


def resumed() -> dict[str, Any]:
    """`fit` with an `initial_epoch` goes on with the order of that epoch."""
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH, seed=3, devices=1)
    whole, half = _model(dp), _model(dp)
    source = (X, Y)
    whole.fit(dp.dataset(source, shuffle=True), epochs=4, verbose=0)
    half.fit(dp.dataset(source, shuffle=True), epochs=2, verbose=0)
    half.fit(dp.dataset(source, shuffle=True), epochs=4, initial_epoch=2, verbose=0)
    return {"whole": whole.get_weights(), "half": half.get_weights()}


def restored(directory: str) -> dict[str, Any]:
    """As `resumed`, with an interruption that Keras's `BackupAndRestore` recovers from."""
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH, seed=3, devices=1)

    class Interrupt(keras.callbacks.Callback):
        """Ends the process's training within the third epoch."""

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 2:
                raise RuntimeError("pulled the plug")

    whole, half, again = (_model(dp) for _ in range(3))
    whole.fit(dp.dataset((X, Y), shuffle=True), epochs=4, verbose=0)
    backup = functools.partial(keras.callbacks.BackupAndRestore, str(Path(directory, "backup")))
    with contextlib.suppress(RuntimeError):
        half.fit(dp.dataset((X, Y), shuffle=True), epochs=4, verbose=0, callbacks=[backup(), Interrupt()])
    again.fit(dp.dataset((X, Y), shuffle=True), epochs=4, verbose=0, callbacks=[backup()])
    return {"whole": whole.get_weights(), "half": again.get_weights()}


def looked_at() -> dict[str, Any]:
    """Looking at a batch before training changes nothing; nor does seed 0, or lists, or validation in other batches."""
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH, seed=0, devices=1)
    histories = []
    for look in (False, True):
        model = _model(dp)
        stream = dp.dataset(tf.data.Dataset.from_tensor_slices((X, Y)), shuffle=True)
        if look:
            next(iter(stream))
        other = tf.data.Dataset.from_tensor_slices((X, Y)).batch(7)
        histories.append(model.fit(stream, epochs=2, validation_data=other, verbose=0).history)
    lists = dp.dataset(([X, IDS], Y))
    return {"histories": histories, "lists": [leaf.shape.as_list() for leaf in tf.nest.flatten(lists.element_spec)]}


class Uneven(Items):
    """Items of other sizes than the first and the last say."""

    def __getitem__(self, index: int) -> Any:
        rows = X[: 4 if index == 2 else 3]
        return rows, rows[:, :1]


def longer() -> str:
    """A source with more examples than it says."""
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH, devices=1)
    try:
        list(dp.dataset(Uneven()))
    except tf.errors.FailedPreconditionError as error:
        return str(error)
    return "no error"


def class_weights() -> list[float]:
    """The loss of an epoch by class weights, and by sample weights that are the same."""
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH, seed=1, devices=1)
    labels = (Y[:, 0] > 0).astype("int32")
    losses = []
    for given in ({"class_weight": {0: 1.0, 1: 3.0}}, {}):
        keras.utils.set_random_seed(1)
        with dp.scope():
            model = dp.prepare(keras.Sequential([keras.Input((5,)), keras.layers.Dense(2)]))
            model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        arrays = (X, labels) if given else (X, labels, np.where(labels, 3.0, 1.0).astype("float32"))
        losses.append(model.fit(dp.dataset(arrays, shuffle=True), epochs=2, verbose=0, **given).history["loss"][-1])
    return losses


def traces() -> int:
    """How often the training step is traced in three epochs with an uneven end."""
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH, devices=1)
    count = []

    class Counting(keras.layers.Layer):
        """Notes when its call is traced."""

        def call(self, inputs: Any) -> Any:
            if not isinstance(inputs, keras.KerasTensor):
                count.append(1)
            return inputs

    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((5,)), Counting(), keras.layers.Dense(1)]))
        model.compile("sgd", "mse")
    data = dp.dataset((X, Y), shuffle=True)
    model.fit(data, epochs=1, verbose=0)
    first = len(count)
    model.fit(data, epochs=3, verbose=0)
    return len(count) - first


def other_inputs() -> dict[str, Any]:
    """A cached stream, several steps per call, class weights, validation data, a remainder that is dropped."""
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH, devices=1)
    reads: list[int] = []

    def examples() -> Any:
        for index in range(33):
            reads.append(index)
            yield X[index], Y[index]

    spec = (tf.TensorSpec((5,), "float32"), tf.TensorSpec((1,), "float32"))
    stream = tf.data.Dataset.from_generator(examples, output_signature=spec)
    stream = stream.apply(tf.data.experimental.assert_cardinality(33))
    cached = dp.dataset(stream, cache=True, shuffle=True)
    model = _model(dp)
    history = model.fit(cached, epochs=3, validation_data=dp.dataset((X, Y)), verbose=0).history
    labels = (Y[:, 0] > 0).astype("int32")
    with dp.scope():
        classifier = dp.prepare(keras.Sequential([keras.Input((5,)), keras.layers.Dense(2)]))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        classifier.compile("sgd", loss, steps_per_execution=3)
    weighted = classifier.fit(dp.dataset((X, labels)), class_weight={0: 1.0, 1: 3.0}, verbose=0).history
    dropped = dp.dataset((X, Y), drop_remainder=True)
    return {
        "reads": len(reads),
        "history": sorted(history),
        "weighted": weighted["loss"][0],
        "dropped": (len(dropped), [batch[0].shape[0] for batch in dropped], dropped.element_spec[0].shape.as_list()),
    }


def tfds(directory: str) -> dict[str, Any]:
    """A real builder of TensorFlow Datasets, and what `tfds.load` gives."""
    sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
    from digits_dataset import Digits

    builder = Digits(data_dir=directory)
    builder.download_and_prepare()
    dp = tfscale.DataParallel(global_batch=100, devices=1)

    def as_pair(example: Any) -> Any:
        return tf.cast(example["image"], tf.float32), example["label"]

    data = dp.dataset(builder, map_fn=as_pair, shuffle=True)
    labels = np.concatenate([batch[1].numpy() for batch in data])
    loaded = dp.dataset(builder.as_dataset(split="test", as_supervised=True))
    return {
        "train": (data.num_examples, len(labels), len(np.unique(labels))),
        "spec": [leaf.shape.as_list() for leaf in data.element_spec],
        "test": loaded.num_examples,
    }


def differing(directory: str, fault: str) -> None:
    """One worker has other examples than the chief."""
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH)
    rows = X
    if dp.rank == 1:
        rows = {"length": X[:30], "content": X + 1}[fault]
    _model(dp).fit(dp.dataset((rows, rows.sum(1, keepdims=True))), verbose=0)


def failing(directory: str) -> dict[str, str]:
    """`map_fn` fails on an example that worker 1 maps; what each worker gets to see."""
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH)

    def check(example_id: np.ndarray) -> np.ndarray:
        if example_id == 18:
            raise ValueError("example 18 is broken")
        return example_id

    def map_fn(example: Any) -> Any:
        (x, example_id), y = example
        noted = tf.ensure_shape(tf.numpy_function(check, [example_id], tf.int64), ())
        return x + 0.0 * tf.cast(noted, tf.float32), y

    start_s = time.monotonic()
    try:
        _model(dp).fit(dp.dataset(((X, IDS), Y), map_fn=map_fn), epochs=100, verbose=0)
    except Exception as error:
        found = {"type": type(error).__name__, "said": str(error), "after_s": time.monotonic() - start_s}
        # The chief serves the others' errors: it must not be gone before they have them.
        time.sleep(3.0)
        return found
    return {}


def unseeded(directory: str, seed: int | None) -> list[str]:
    """The warnings of a `fit` on a plain `tf.data.Dataset` that shuffles."""
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH)
    data = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(40, seed=seed).batch(GLOBAL_BATCH).prefetch(1)
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)]))
        model.compile("sgd", "mse")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(data, verbose=0)
    return [str(each.message) for each in caught if "without a seed" in str(each.message)]


def agreed_seed(directory: str) -> list[float]:
    """Without a seed every worker would mix in an order of its own: the chief's reaches all."""
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH)
    np.random.seed(dp.rank)
    model = _model(dp)
    np.random.seed(dp.rank)
    ids = tf.data.Dataset.from_tensor_slices((X, Y))
    return [model.fit(dp.dataset(source, shuffle=True), verbose=0).history["loss"][0] for source in ((X, Y), ids)]


def refused(kind: str) -> None:
    """What has to be refused."""
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH, devices=1)
    examples = tf.data.Dataset.from_tensor_slices(X)
    sources = {
        "batched": lambda: examples.batch(10),
        "batched, then prefetched": lambda: examples.shuffle(5).padded_batch(10).prefetch(2),
        "infinite": lambda: examples.repeat(),
        "unknown": lambda: examples.filter(lambda row: row[0] > 0),
        "lengths": lambda: (X, Y[:30]),
        "scalar": lambda: np.float32(3),
        "empty": lambda: X[:0],
        "empty stream": lambda: examples.take(0),
        "nothing": lambda: None,
        "text": lambda: "train",
    }
    if kind == "map_fn":
        dp.dataset(X, map_fn=lambda row: tf.data.Dataset.from_tensors(row).repeat(2)).as_tf_data()
    elif kind == "load":
        dp.dataset(X, worker_load=[1, 2])
    elif kind == "dropped":
        dp.dataset(X[:5], drop_remainder=True)
    elif kind == "position":
        dp.dataset(X).start_at(0, 4)
    else:
        dp.dataset(sources[kind]())

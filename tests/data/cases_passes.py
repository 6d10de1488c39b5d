"""Passes over `dp.dataset` on one replica."""

from __future__ import annotations

import contextlib
import functools
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.data.example_rows import GLOBAL_BATCH, IDS, Items, X, Y, make_model, noting, noting_ids


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
        data = dp.dataset(source, map_fn=noting(seen))
        data.start_at(0, 2)
        list(data)
        found.append(sorted(seen))
    return found


def resumed() -> dict[str, Any]:
    """`fit` with an `initial_epoch` goes on with the order of that epoch."""
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH, seed=3, devices=1)
    whole, half = make_model(dp), make_model(dp)
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

    whole, half, again = (make_model(dp) for _ in range(3))
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
        model = make_model(dp)
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
    model = make_model(dp)
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
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
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


def validation() -> list[list[float]]:
    """Draws of validation data in epochs 2 and 3, of a whole `fit` and of one that goes on; evaluated every 2nd."""
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH, seed=3, devices=1)
    found = []
    for initial_epoch in (0, 4):
        model = make_model(dp)
        noisy = dp.dataset(((X, IDS), Y), map_fn=noting([]))
        # At rate 0 the loss depends on the draws alone.
        model.optimizer.learning_rate = 0.0
        given = {"initial_epoch": initial_epoch, "validation_data": noisy, "validation_freq": 2}
        history = model.fit(dp.dataset((X, Y)), epochs=8, verbose=0, **given).history
        found.append(history["val_loss"][-2:])
    return found


def kept() -> dict[str, Any]:
    """`cache="mapped"`: how often examples are mapped in three shuffled epochs, and whether they stay the same."""
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH, seed=3, devices=1)
    found = {}
    for name, source in {"arrays": (X, IDS), "stream": tf.data.Dataset.from_tensor_slices((X, IDS))}.items():
        seen: list[int] = []

        note = noting_ids(seen)

        def map_fn(example: Any, note: Any = note) -> Any:
            x, example_id = example
            noted = note(example_id)
            if noted % 2 == 0:
                x = -x
            return {"x": x, "id": noted, "ragged": tf.RaggedTensor.from_row_splits(x, [0, 2, 5])}

        data = dp.dataset(source, map_fn=map_fn, shuffle=True, cache="mapped")
        epochs = [list(data) for _ in range(3)]
        spec = data.element_spec
        found[name] = {
            "seen": seen,
            "ids": [[each["id"].numpy().tolist() for each in epoch] for epoch in epochs],
            "x": [np.concatenate([each["x"].numpy() for each in epoch]) for epoch in epochs],
            "ragged": [tf.concat([each["ragged"] for each in epoch], 0).flat_values.numpy() for epoch in epochs],
            "spec": (spec["x"].shape.as_list(), spec["ragged"].shape.as_list()),
        }
    return found


def lengths_that_differ() -> str:
    """Examples of several lengths, which no batch can hold."""
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH, devices=1)
    rows = tf.data.Dataset.range(33).map(lambda number: (tf.ones((5 + number % 2, 1)), 1.0))
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((None, 1)), keras.layers.GlobalAveragePooling1D()]))
        model.compile("sgd", "mse")
    try:
        model.evaluate(dp.dataset(rows), verbose=0)
    except tfscale.DataError as error:
        return str(error)
    return "no error"

"""What two workers do together. Every function runs in two processes of its own."""

from __future__ import annotations

import random
import time
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.data.cases_files import write
from tests.data.example_rows import EPOCHS, GLOBAL_BATCH, IDS, NUM_EXAMPLES, X, Y, make_model, noting_ids

# Worker 0 gets files 2 and 5, worker 1 the others: the longest first, each to whoever has less.
LENGTHS, OWNED = (7, 3, 11, 5, 2, 5), ((2, 5), (0, 1, 3, 4))

ARRAYS = ((None, True), (None, False), (None, "batch"), (3, True), (3, "batch"), ("rank", True))


def together(directory: str) -> dict[str, Any]:
    """One job after another: what all refuse is no failure, and the next one goes on."""
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH)
    return {
        "refused": {fault: _differing(dp, fault) for fault in ("length", "content", "arguments")},
        "seed": _agreed_seed(dp),
        "unseeded": {seed: _unseeded(dp, seed) for seed in (None, 3, "rank", "global")},
        "measured": _measured(dp),
        "kept": _kept(dp),
        "files": _by_files(dp, Path(directory, str(dp.rank))),
    }


def shuffled_by_keras(directory: str) -> dict[Any, Any]:
    """Arrays, by seed and `shuffle`, and batches, by the seed of Python, that `fit` mixes."""
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH)
    found: dict[Any, Any] = {arguments: _arrays(dp, *arguments) for arguments in ARRAYS}
    return found | {seed: _batches_of_items(dp, seed) for seed in (1, "rank")}


def ordered_by_time(directory: str) -> dict[str, Any]:
    """The rows that this worker trains on where a pipeline hands on what is ready first, or what is said of it."""
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH)
    options = tf.data.Options()
    options.deterministic = False
    examples = tf.data.Dataset.from_tensor_slices((IDS.astype("float32")[:, np.newaxis], Y))
    batches = examples.batch(GLOBAL_BATCH)
    late = {"num_parallel_calls": 4, "deterministic": False}
    pipelines = {
        "map": batches.map(_sooner_or_later, **late),
        "interleave": examples.interleave(_one, cycle_length=4, **late).batch(GLOBAL_BATCH),
        "options": batches.map(_sooner_or_later, num_parallel_calls=4).with_options(options),
    }
    found: dict[str, Any] = {}
    for name, data in pipelines.items():
        found[name] = []
        try:
            _noting_rows(dp, found[name]).fit(data, verbose=0)
        except tfscale.DataError as error:
            found[name] = str(error)
    try:
        dp.dataset(examples.map(_sooner_or_later, **late))
    except tfscale.DataError as error:
        found["examples"] = str(error)
    return found


def _one(*example: tf.Tensor) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors(example)


def _sooner_or_later(x: tf.Tensor, y: tf.Tensor) -> Any:
    def wait(x: np.ndarray) -> np.ndarray:
        time.sleep(random.random() / 50)
        return x

    return tf.ensure_shape(tf.numpy_function(wait, [x], tf.float32), x.shape), y


def _differing(dp: Any, fault: str) -> str:
    """One worker has other examples than the chief, or other arguments."""
    rows, arguments = X, {}
    if dp.rank == 1:
        rows = {"length": X[:30], "content": X + 1}.get(fault, X)
        arguments = {"worker_load": [2, 1]} if fault == "arguments" else {}
    try:
        make_model(dp).fit(dp.dataset((rows, rows.sum(1, keepdims=True)), **arguments), verbose=0)
    except tfscale.DataError as error:
        return str(error)
    return "no error"


def _agreed_seed(dp: Any) -> list[float]:
    """Without a seed every worker would mix in an order of its own: the chief's reaches all."""
    model = make_model(dp)
    np.random.seed(dp.rank)
    stream = tf.data.Dataset.from_tensor_slices((X, Y))
    return [model.fit(dp.dataset(source, shuffle=True), verbose=0).history["loss"][0] for source in ((X, Y), stream)]


def _unseeded(dp: Any, seed: Any) -> dict[str, str]:
    """What is said of a plain `tf.data.Dataset` that shuffles, to train or evaluate on."""
    # Which others before set.
    tf.random.set_seed(dp.rank if seed == "global" else None)
    own = {"rank": 7 + dp.rank, "global": None}.get(seed, seed)
    rows = tf.data.Dataset.from_tensor_slices((X, Y))
    # What draws, and does not mix the examples.
    noisy = rows.map(lambda x, y: (x + tf.random.normal(tf.shape(x), stddev=0.0), y))
    data, found, model = noisy.shuffle(40, seed=own).batch(GLOBAL_BATCH).prefetch(1), {}, make_model(dp)
    calls = {
        "fit": lambda: model.fit(data, verbose=0),
        "validation": lambda: model.fit(rows.batch(GLOBAL_BATCH), validation_data=data, verbose=0),
        "evaluate": lambda: model.evaluate(data, verbose=0),
    }
    for name, call in calls.items():
        try:
            call()
            found[name] = "no error"
        except tfscale.DataError as error:
            found[name] = str(error)
    tf.random.set_seed(None)
    return found


def _arrays(dp: Any, seed: Any, shuffle: Any) -> dict[str, Any]:
    """The rows of arrays, which Keras shuffles, that this worker trains on: by epoch, batch by batch; and warnings."""
    seen, seed = [], dp.rank if seed == "rank" else seed
    model = _noting_rows(dp, seen)
    tf.random.set_seed(seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        options = {"batch_size": GLOBAL_BATCH, "epochs": 3, "verbose": 0}
        model.fit(IDS.astype("float32")[:, np.newaxis], Y, shuffle=shuffle, **options)
    steps = [seen[start : start + 4] for start in range(0, 12, 4)]
    found = {"epochs": steps, "warnings": [str(each.message) for each in caught if "shuffle" in str(each.message)]}
    # No seed was set.
    return found | {"seed": tf.compat.v1.random.get_seed(1)[0]}


def _batches_of_items(dp: Any, seed: Any) -> list[list[int]]:
    """The rows of a `PyDataset`, whose batches Keras shuffles, that this worker trains on."""
    seen: list[list[int]] = []
    model = _noting_rows(dp, seen)
    random.seed(dp.rank if seed == "rank" else seed)
    model.fit(_Batches(), epochs=2, verbose=0)
    return seen


class _Batches(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        rows = slice(GLOBAL_BATCH * index, GLOBAL_BATCH * (index + 1))
        return IDS[rows].astype("float32")[:, np.newaxis], Y[rows]


def _noting_rows(dp: Any, seen: list[list[int]]) -> keras.Model:
    def note(rows: np.ndarray) -> np.ndarray:
        seen.append([int(row) for row in rows[:, 0]])
        return rows

    with dp.scope():
        noted = keras.layers.Lambda(lambda x: tf.ensure_shape(tf.numpy_function(note, [x], tf.float32), (None, 1)))
        model = dp.prepare(keras.Sequential([keras.Input((1,)), noted, keras.layers.Dense(1)]), check="off")
        model.compile("sgd", "mse")
    return model


def _measured(dp: Any) -> dict[str, Any]:
    """Worker 1 takes long for each of its examples: what the shares become, and the weights by them and by none."""

    def slow(x: np.ndarray) -> np.ndarray:
        time.sleep(0.02 * dp.rank)
        return x

    def slowly(example: Any) -> Any:
        x, y = example
        return tf.ensure_shape(tf.numpy_function(slow, [x], tf.float32), (5,)), y

    found: dict[str, Any] = {"weights": []}
    for load in ("auto", None):
        model = make_model(dp)
        data = dp.dataset((X, Y), map_fn=slowly, shuffle=3, worker_load=load)
        model.fit(data, epochs=2, verbose=0)
        found[load or "equal"] = data.worker_load
        found["weights"].append(model.get_weights())
    return found


def _kept(dp: Any) -> list[int]:
    """What this worker maps in six shuffled epochs when it keeps each example that it mapped."""
    seen: list[int] = []
    note = noting_ids(seen)

    def map_fn(example: Any) -> Any:
        (x, example_id), y = example
        return x + 0.0 * tf.cast(note(example_id), tf.float32), y

    data = dp.dataset(((X, IDS), Y), map_fn=map_fn, shuffle=True, cache="mapped")
    make_model(dp).fit(data, epochs=6, verbose=0)
    return seen


def _by_files(dp: Any, directory: Path) -> dict[str, Any]:
    """Files of one's own, the only ones that are there: what is mapped, and the loss that all rows have together."""
    seen: list[int] = []
    note = noting_ids(seen)

    def map_fn(record: tf.Tensor) -> Any:
        number = note(tf.strings.to_number(record, tf.int64))
        x = tf.fill((5,), tf.cast(number, tf.float32) / NUM_EXAMPLES)
        return x, x[:1]

    names = write(directory, LENGTHS)
    for file, name in enumerate(names):
        if file not in OWNED[dp.rank]:
            Path(name).unlink()
    data = dp.dataset(
        tfscale.RecordFiles(names, lengths=LENGTHS), map_fn=map_fn, shuffle=True, sharding="files", cache=True
    )
    model = make_model(dp)
    found: dict[str, Any] = {"loss": model.fit(data, epochs=EPOCHS, verbose=0).history["loss"]}
    found["mapped"], found["steps"] = list(seen), len(data)
    found["evaluate"] = model.evaluate(data, verbose=0)[0]
    x = np.repeat(np.arange(NUM_EXAMPLES, dtype="float32")[:, np.newaxis] / NUM_EXAMPLES, 5, axis=1)
    found["by hand"] = float(np.mean((model.predict(x, verbose=0) - x[:, :1]) ** 2))
    try:
        model.predict(data, verbose=0)
    except tfscale.DataError as error:
        found["predict"] = str(error)
    return found


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
        make_model(dp).fit(dp.dataset(((X, IDS), Y), map_fn=map_fn), epochs=100, verbose=0)
    except Exception as error:
        found = {"type": type(error).__name__, "said": str(error), "after_s": time.monotonic() - start_s}
        # The chief serves the others' errors: it must not be gone before they have them.
        time.sleep(3.0)
        return found
    return {}


def refusing(directory: str) -> dict[str, Any]:
    """Worker 1 alone refuses what it is given; what each worker gets to see."""
    dp = tfscale.DataParallel(global_batch=GLOBAL_BATCH)
    model = make_model(dp)
    given = {"batch_size": 3} if dp.rank == 1 else {}
    start_s = time.monotonic()
    try:
        model.fit(X, Y, epochs=1000, verbose=0, **given)
    except tfscale.TfscaleError as error:
        found = {"type": type(error).__name__, "said": str(error), "after_s": time.monotonic() - start_s}
        # As in `failing`.
        time.sleep(3.0)
        return found
    return {}

"""What a pipeline hands on by the clock has another order on each worker: it is read in one, or refused by name."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.data.example_rows import GLOBAL_BATCH, NUM_EXAMPLES
from tests.processes import run_workers
from tfscale.data.one_order import in_one_order
from tfscale.errors import DataError

NUMBERS = tf.data.Dataset.range(40)
LATE = {"num_parallel_calls": 2, "deterministic": False}


def _rows(number):
    return tf.data.Dataset.from_tensors(number)


BY_TIME = {
    "map": NUMBERS.map(lambda each: each + 1, **LATE).batch(4),
    "batch": NUMBERS.batch(4, **LATE),
    "interleave": NUMBERS.interleave(_rows, **LATE).batch(4).prefetch(1),
    "what is interleaved": NUMBERS.flat_map(lambda each: _rows(each).map(lambda row: row, **LATE)).batch(4),
    "sloppy": NUMBERS.apply(tf.data.experimental.parallel_interleave(_rows, 2, sloppy=True)).batch(4),
    "one of two": tf.data.Dataset.zip((NUMBERS.batch(4), NUMBERS.map(lambda each: each, **LATE).batch(4))),
}
IN_ORDER = {
    "map": NUMBERS.map(lambda each: each + 1, num_parallel_calls=2).batch(4),
    "said so": NUMBERS.map(lambda each: each + 1, num_parallel_calls=2, deterministic=True).batch(4),
    "interleave": NUMBERS.interleave(_rows, num_parallel_calls=2).batch(4, num_parallel_calls=2),
    "calls Python": NUMBERS.map(lambda each: tf.numpy_function(lambda row: row, [each], tf.int64)).interleave(
        _rows, num_parallel_calls=2
    ),
    "a generator": tf.data.Dataset.from_generator(
        lambda: iter(range(3)), output_signature=tf.TensorSpec((), tf.int64)
    ).interleave(_rows, num_parallel_calls=2),
    "much": tf.data.Dataset.from_tensor_slices(np.zeros((3, 2**24), "float32")).interleave(_rows, num_parallel_calls=2),
    "files": tf.data.TFRecordDataset(["one", "two"], num_parallel_reads=2).batch(4),
}


@pytest.mark.parametrize("name", BY_TIME)
def test_what_is_ready_first_comes_first(name):
    with pytest.raises(DataError, match="deterministic=False"):
        in_one_order(BY_TIME[name])


@pytest.mark.parametrize("name", IN_ORDER)
def test_what_has_one_order_stays_as_it_is(name):
    assert in_one_order(IN_ORDER[name]) is IN_ORDER[name]


@pytest.mark.parametrize("given", [None, True, False])
def test_options_are_set_back(given):
    options = tf.data.Options()
    if given is not None:
        options.deterministic = given
    options.threading.private_threadpool_size = 3
    found = in_one_order(NUMBERS.batch(4).with_options(options)).options()
    assert found.deterministic is (given if given is None else True)
    assert found.threading.private_threadpool_size == 3


@pytest.fixture(scope="module")
def on_workers():
    return run_workers("tests.data.cases_workers:ordered_by_time", 2, args=("",))


@pytest.mark.parametrize("name", ["map", "interleave", "examples"])
def test_workers_refuse_an_order_by_the_clock(on_workers, name):
    for found in on_workers:
        assert "`deterministic=False`" in found[name]


def test_workers_read_by_the_order_of_the_examples_whatever_options_say(on_workers):
    first, second = (found["options"] for found in on_workers)
    batches = [[*own, *other] for own, other in zip(first, second, strict=True)]
    assert [*itertools.chain(*batches)] == list(range(NUM_EXAMPLES))
    assert [len(batch) for batch in batches[:-1]] == [GLOBAL_BATCH] * (len(batches) - 1)

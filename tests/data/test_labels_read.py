"""What passes over data have had is noted pass by pass; pipelines that may make other labels are told apart."""

import numpy as np
import pytest
import tensorflow as tf

from tfscale.cluster.passes import EndedPass, PassesRead
from tfscale.data.labels_read import LabelsRead, Reading
from tfscale.framework.datasets import draws_values

NUMBERS = tf.data.Dataset.range(40)


def _drawn(number):
    return number + tf.random.uniform((), maxval=3, dtype=tf.int64)


DRAWING = {
    "random": NUMBERS.map(_drawn),
    "Python": NUMBERS.map(lambda each: tf.numpy_function(lambda number: number, [each], tf.int64)),
    "in a function that is called": NUMBERS.map(tf.function(_drawn)),
    "of a nested data set": NUMBERS.flat_map(lambda each: tf.data.Dataset.range(each).map(_drawn)),
}
NOT_DRAWING = {
    "batches": NUMBERS.batch(3).map(lambda each: each * 2).prefetch(1),
    "an order": NUMBERS.shuffle(5),
    "choices": NUMBERS.filter(lambda each: tf.random.uniform(()) < 0.5),
    "examples of two": tf.data.Dataset.sample_from_datasets([NUMBERS, NUMBERS]),
    "a generator": tf.data.Dataset.from_generator(lambda: iter(range(3)), output_signature=tf.TensorSpec((), tf.int64)),
    "a seed of each": NUMBERS.map(lambda each: tf.random.stateless_uniform((), (1, each), maxval=3, dtype=tf.int64)),
}


@pytest.mark.parametrize("name", DRAWING)
def test_functions_that_may_make_other_labels(name):
    assert draws_values(DRAWING[name].batch(2))


@pytest.mark.parametrize("name", NOT_DRAWING)
def test_what_makes_the_same_labels_of_an_example(name):
    assert not draws_values(NOT_DRAWING[name].batch(2))


def _batches(*orders):
    passes = iter(orders)
    labels = tf.data.Dataset.from_generator(lambda: next(passes), output_signature=tf.TensorSpec((), tf.int64))
    return labels.map(lambda label: (tf.zeros(3), label)).batch(2)


@pytest.mark.parametrize("weights", [None, {"a": None, "b": None}, (None, tf.constant([1.0, 2.0]))])
def test_weights_that_are_not_there(weights):
    data = tf.data.Dataset.from_tensors(0).map(lambda _: (tf.zeros([2, 3]), tf.constant([1, 2]), weights))
    read = LabelsRead(data)
    ((_, labels, given),) = read.noting(data)
    assert read.position == (1, 1)
    assert labels.numpy().tolist() == [1, 2]
    tf.nest.assert_same_structure(given, next(iter(data))[2])


def test_passes_are_noted_apart():
    read = LabelsRead(_batches())
    noted = read.noting(_batches(range(10), reversed(range(10))))
    assert read.position == (0, 0)
    first, second = iter(noted), iter(noted)
    for iterator in (first, second, first, second):
        next(iterator)
    num_passes, count = read.position
    # TensorFlow may read one ahead.
    assert num_passes == 2
    assert count >= 2
    same, other = LabelsRead(_batches()), LabelsRead(_batches())
    for each, order in ((same, range(10)), (other, (0, 1, 3, 2))):
        assert len(list(each.noting(_batches(order)))) >= 2
    assert read.until((1, 2)).batches == 2
    np.testing.assert_array_equal(read.until((1, 2)).sums, same.until((1, 2)).sums)
    assert not np.array_equal(read.until((1, 2)).sums, other.until((1, 2)).sums)


def test_what_is_read_stays_as_it_was():
    ragged = tf.data.Dataset.from_tensors(
        (tf.ragged.constant([[1], [2, 3]]), tf.constant(["a", "b"]), tf.zeros((2, 0)))
    )
    read = LabelsRead(ragged)
    (found,) = read.noting(ragged)
    assert found[0].to_list() == [[1], [2, 3]]
    assert found[1].numpy().tolist() == [b"a", b"b"]
    assert read.noting(ragged).element_spec == ragged.element_spec
    assert read.position == (1, 1)


def test_few_of_many_batches_wait_for_python():
    read = LabelsRead(NUMBERS)
    passes = read.noting(tf.data.Dataset.range(1000).batch(1))
    assert len(list(passes)) == 1000
    # Those at 1, 2, 4 and 8, and every sixteenth from the first on.
    assert read.position == (1, 4 + 1000 // 16 + 1)
    assert read.until(read.position).batches == 993


def test_what_was_compared_and_passes_long_ago_are_forgotten():
    read = LabelsRead(NUMBERS)
    noted = read.noting(NUMBERS)
    for _ in range(6):
        next(iter(noted))
    assert read.until((1, 1)) is None
    assert read.until((6, 1)).batches == 1


def test_ends_are_noted_where_nothing_else_tells_how_much_there_is():
    strategy, passes = tf.distribute.OneDeviceStrategy("CPU:0"), PassesRead()
    numbers = tf.data.Dataset.range(6)
    unknown = numbers.filter(lambda _: True)
    reading = Reading(strategy, "fit", None)
    for given, dataset in ((None, numbers), (np.zeros((6, 1)), unknown), ([np.zeros((6, 1))], unknown)):
        with reading.of_data(given):
            assert len(list(reading.add(dataset, passes)(dataset))) == 6
    assert passes.last_ended == EndedPass()
    with reading.of_data(unknown):
        assert len(list(reading.add(unknown, passes)(unknown))) == 6
    assert passes.last_ended == EndedPass(1, 1, 6)
    reading.compare()

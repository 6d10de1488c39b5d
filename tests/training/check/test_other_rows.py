"""A step is compared on rows that are to each other what those of a later batch may be."""

import numpy as np
import pytest
import tensorflow as tf

from tests.processes import run_case
from tests.training.check.cases_other_rows import APART, TERMS
from tfscale.training.check.other_rows import KINDS, changed_rows

ALIKE, THREE, _, TWO, TEN, *_ = KINDS


@pytest.fixture(scope="module")
def said():
    return run_case("tests.training.check.cases_other_rows:said_of_terms", timeout_s=400)


@pytest.mark.parametrize("term", TERMS)
def test_rows_that_meet_in_a_later_batch_are_seen_in_the_first(said, term):
    assert "mixes the rows" in said[term] or "those of a later batch" in said[term], said[term]


@pytest.mark.parametrize("term", APART)
def test_rows_that_never_meet_are_no_matter(said, term):
    assert said[term] == ""


def changed(values, kinds, dtype=None):
    leaf = tf.constant(values, dtype)
    found = changed_rows(leaf, kinds)
    assert (found.dtype, found.shape) == (leaf.dtype, leaf.shape)
    return found.numpy().tolist()


def test_whole_numbers_are_alike_or_of_several_kinds():
    assert changed([4, 5, 6, 7], ALIKE) == [4, 4, 4, 4]
    # Those that there are: others may be no classes.
    assert changed([4, 5, 6, 7], THREE) == [4, 5, 6, 4]
    assert changed([4, 5, 6, 7], TWO) == [5, 4, 4, 4]
    assert changed([1.0, 0.0, 0.0, 1.0], TWO) == [0.0, 1.0, 1.0, 1.0]
    # And a class that the batch does not have.
    assert changed([1, 0, 0, 1], THREE) == [0, 1, 2, 0]
    assert changed([[4], [4], [4]], THREE) == [[0], [1], [2]]
    assert changed([True, True, True], TWO) == [True, False, False]
    assert changed(["a", "b"], ALIKE) == [b"a", b"a"]
    assert changed(["a", "b"], TWO) == [b"a", b"b"]


def test_several_in_a_row_stay_what_they_are():
    # As indices of tokens they are known to be such; the last of each kinds are filled up with zeros.
    assert changed([[1, 2, 3], [4, 5, 6], [7, 8, 9]], ALIKE) == [[1, 2, 3]] * 3
    assert changed([[1, 2, 3], [4, 5, 6], [7, 8, 9]], THREE) == [[1, 2, 3], [6, 4, 5], [8, 9, 0]]
    assert changed([[1, 2, 3], [4, 5, 6], [7, 8, 9]], TWO) == [[3, 1, 0], [4, 5, 6], [7, 8, 9]]


def test_what_is_the_same_in_all_rows_is_told_apart():
    assert changed([0.0, 0.0, 0.0], TWO) == [0.25, 0.5, 0.75]
    assert changed([0.0, 0.0, 0.0], ALIKE) == [0.0, 0.0, 0.0]


def test_other_numbers_lie_near_each_other():
    np.testing.assert_allclose(
        changed([[0.5, 1.0], [1.5, 1.0], [4.0, 1.0]], ALIKE), [[1.85, 1.0], [1.95, 1.0], [2.2, 1.0]], rtol=1e-6
    )
    assert changed([0.5, 1.5, 4.0], TEN) == [0.5, 1.5, 4.0]
    assert changed([0.5, 1.5, 4.0], ALIKE) == [0.5, 0.5, 0.5]
    np.testing.assert_allclose(changed([0.5, 1.5, 4.0], THREE, tf.float64), [0.005, 0.015, 0.04], rtol=1e-12)


def test_ragged_rows_differ_in_length():
    rows = tf.ragged.constant([[1, 2], [3, 4], [5, 6, 7]])
    assert changed_rows(rows, TWO).to_list() == [[1, 2], [3], [5]]
    assert changed_rows(rows, ALIKE).to_list() == rows.to_list()

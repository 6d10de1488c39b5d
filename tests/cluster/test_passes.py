"""How many batches passes over data have had is known by data set and pass; old ones are forgotten."""

import math

import pytest

from tests.cluster.reading import read_pass
from tfscale.cluster.passes import EndedPass, LabelsSeen, PassesRead, labels_to_wire, read_labels


def test_nothing_is_known_of_what_was_notread_pass():
    passes = PassesRead()
    assert passes.last_ended == EndedPass()
    assert passes.last_ended_of(1) == EndedPass()
    assert passes.find_ended(1, 1) is None
    assert not passes.has_more_than(EndedPass(1, 1, 0))


def test_passes_and_data_sets_are_apart():
    passes = PassesRead()
    first, second = passes.add_data(), passes.add_data()
    assert (first, second) == (1, 2)
    assert [read_pass(passes, first, 3), read_pass(passes, second, 5), read_pass(passes, first, 4)] == [1, 1, 2]
    assert passes.last_ended == EndedPass(first, 2, 4)
    assert passes.last_ended_of(second) == EndedPass(second, 1, 5)
    assert passes.find_ended(first, 1) == EndedPass(first, 1, 3)


def test_a_pass_that_goes_on_has_more_than_one_that_ended_with_fewer():
    passes = PassesRead()
    data = passes.add_data()
    number = read_pass(passes, data, 3, ends=False)
    assert passes.has_more_than(EndedPass(data, number, 2))
    assert not passes.has_more_than(EndedPass(data, number, 3))
    assert not passes.has_more_than(EndedPass(data, number + 1, 2))
    assert passes.find_ended(data, number) is None
    assert passes.last_ended == EndedPass()


def test_a_pass_is_noted_while_another_isread_pass():
    passes = PassesRead()
    data = passes.add_data()
    one, other = passes.begin(data), passes.begin(data)
    for number in (one, other, one):
        passes.note(data, number)
    passes.end(data, other)
    assert passes.has_more_than(EndedPass(data, one, 1))
    assert passes.last_ended == EndedPass(data, other, 1)


def test_what_is_long_past_is_forgotten_and_no_longer_noted():
    passes = PassesRead()
    data = passes.add_data()
    oldest = passes.begin(data)
    for _ in range(200):
        read_pass(passes, data, 1)
    passes.note(data, oldest)
    passes.end(data, oldest)
    assert not passes.has_more_than(EndedPass(data, oldest, 0))
    assert passes.find_ended(data, oldest) is None
    assert passes.last_ended.number == 201


SUMS = (1.5, -2.0, 3.0, 0.0, 4.0, 1.0, 1.0, 1.0, 100.0)


def test_labels_are_compared_at_the_same_place_only():
    passes = PassesRead()
    other = (SUMS[0] + 1, *SUMS[1:])
    assert passes.last_labels == LabelsSeen()
    passes.note_labels(LabelsSeen(1, 1, 4, SUMS))
    assert passes.last_labels.place == (1, 1, 4)
    assert passes.has_other_labels_than(LabelsSeen(1, 1, 4, other))
    assert not passes.has_other_labels_than(LabelsSeen(1, 1, 4, (SUMS[0] + 0.001, *SUMS[1:])))
    for place in [(1, 1, 5), (1, 2, 4), (2, 1, 4)]:
        assert not passes.has_other_labels_than(LabelsSeen(*place, other))


def test_old_labels_are_forgotten():
    passes = PassesRead()
    for batches in range(1, 400):
        passes.note_labels(LabelsSeen(1, 1, batches, SUMS))
    assert not passes.has_other_labels_than(LabelsSeen(1, 1, 1, SUMS[::-1]))
    assert passes.has_other_labels_than(LabelsSeen(1, 1, 399, SUMS[::-1]))


def test_a_data_set_says_whether_it_may_be_augmented():
    passes = PassesRead()
    first, second = passes.add_data(may_be_augmented=True), passes.add_data()
    assert (passes.may_be_augmented(first), passes.may_be_augmented(second)) == (True, False)


def test_labels_are_the_same_behind_the_wire():
    labels = LabelsSeen(3, 2, 7, SUMS)
    assert read_labels(labels_to_wire(labels)) == labels
    assert read_labels(labels_to_wire(LabelsSeen())) == LabelsSeen()


@pytest.mark.parametrize(
    "told",
    [
        None,
        7,
        [1],
        [1, 1, 1, *SUMS[1:]],
        [0, 1, 1, *SUMS],
        [1, -1, 1, *SUMS],
        [1, 1, 1 << 50, *SUMS],
        [1, 1, True, *SUMS],
        [1, 1, 1, *SUMS[:-1], math.nan],
        [1, 1, 1, *SUMS[:-1], -1.0],
        [1, 1, 1, *SUMS[:-1], "9"],
    ],
)
def test_malformed_labels(told):
    with pytest.raises(ValueError, match="abels"):
        read_labels(told)

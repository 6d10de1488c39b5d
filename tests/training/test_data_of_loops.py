"""Workers whose loop by hand is given other data than those of the others: all end, told which, none waits for ever."""

import re

import pytest

from tests.processes import run_workers, run_workers_to_the_end

TRAIN = "tests.training.cases_data_of_loops:train"
OTHER_LABELS = r"worker [01] \(127\.0\.0\.1:\d+\) has other labels than another worker in the first \d+ batch\(es\)"
ENDED = r"worker 1 \(127\.0\.0\.1:\d+\) has come to the end of its data after %s batches, and others have more\. Give"


@pytest.mark.parametrize(
    ("data", "loop", "said"),
    [
        ("another order", "eager", OTHER_LABELS),
        ("another order", "graph", OTHER_LABELS),
        ("short", "eager", ENDED % 5),
        ("short, of unknown length", "graph", ENDED % 5),
        ("own, short", "eager", ENDED % 9),
    ],
)
def test_all_are_told(data, loop, said):
    for status, _, output in run_workers_to_the_end(TRAIN, 2, args=(data, loop), waits_for=[0, 1]):
        assert status == 1, output
        _, _, shown = output.partition("Traceback (most recent call last)")
        found = r"tfscale\.errors\.ClusterError: All workers must take part in every step\.\nReceived: "
        assert re.search(found + said, shown), output
        if (data, loop) == ("another order", "eager"):
            assert "step 1" not in output, output


@pytest.mark.parametrize("loop", ["eager", "graph"])
def test_a_job_that_is_over_before_it_is_told_says_so(loop):
    ended = run_workers_to_the_end(TRAIN, 2, args=("another order", loop, 1), waits_for=[0, 1])
    assert any(re.search(OTHER_LABELS, output) for _, _, output in ended), [each.output for each in ended]


@pytest.mark.parametrize(("data", "batches"), [("alike", 6), ("own", 11)])
def test_the_same_data_train(data, batches):
    one, other = run_workers(TRAIN, 2, args=(data, "eager", 2))
    assert one == other
    assert len(one) == 2 * batches


def test_augmented_labels_are_a_warning():
    ended = run_workers_to_the_end(TRAIN, 2, args=("augmented", "eager", 8), waits_for=[0, 1])
    assert all(status == 0 for status, _, _ in ended), [each.output for each in ended]
    assert any("Nothing is wrong if only augmentation differs." in output for _, _, output in ended)


@pytest.mark.parametrize("runs", ["eager", "graph"])
def test_batches_that_a_script_hands_over_are_compared_before_the_first_step(runs):
    case = TRAIN + "_by_hand"
    for status, _, output in run_workers_to_the_end(case, 2, args=("another order", runs), waits_for=[0, 1]):
        assert status == 1, output
        assert re.search(OTHER_LABELS, output), output
        assert "step 1" not in output, output


def test_the_same_batches_by_hand_train():
    one, other = run_workers(TRAIN + "_by_hand", 2, args=("alike", "graph"))
    assert one == other
    assert len(one) == 12

"""One of several real workers goes, stops, hangs, leaves or does something else: what the others see, and when."""

import re

import pytest

from tests.processes import run_workers_to_the_end

TRAIN = "tests.training.cases_gone:train"
WITHIN_S = 15
RAW = ("Graph execution error", "Shape mismatch in the collective instance", "Detected at node")
WHERE = r"(in step \d|at the begin) of epoch 1[0-4] of `fit`"

# What befalls which of how many workers, and what the survivors are told of it.
FAULTS = {
    "killed": (1, 3, rf"is gone: its port refuses connections\. Heard of last {WHERE}"),
    "exit at once": (1, 2, rf"is gone: its port refuses connections\. Heard of last {WHERE}"),
    "stopped": (0, 2, rf"was silent for \d+ s: it is stopped, or its host is down .* Heard of last {WHERE}"),
    "hang": (1, 2, r"holds the others up for \d+ s, .* Heard of last in step 2 of epoch 14 of `fit`"),
    "exit": (1, 2, r"failed with SystemExit: 0\. Heard of last in step 2 of epoch 14 of `fit`"),
    "interrupt": (0, 2, r"failed with KeyboardInterrupt\. Heard of last in step 2 of epoch 14 of `fit`"),
    "stop_training": (1, 2, r"has ended its call after 54 batches, and others go on, in step 3 of epoch 14 of `fit`"),
    "epochs": (0, 2, r"has ended its call after 56 batches, and others go on, .* of epoch 1[45] of `fit`"),
    "short, of unknown length": (
        1,
        3,
        r"has come to the end of its data after 3 batches, and others have more, .* of epoch 1 of `fit`",
    ),
    "model": (1, 2, r"has a tensor of the shape \[5,[47]\], where another worker has \[5,[47]\]"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_survivors_are_told_who_and_where(fault):
    victim, count, said = FAULTS[fault]
    survivors = [rank for rank in range(count) if rank != victim]
    ended = run_workers_to_the_end(TRAIN, count, args=(fault, victim), waits_for=survivors)
    begin = re.search(r"fault ([\d.]+)", ended[victim].output)
    for rank in survivors:
        status, _, output = ended[rank]
        assert status == 1
        found = re.search(r"after ([\d.]+) ours: All workers must take part in every step\. \| Received: (.*)", output)
        assert found is not None, output
        # Of two that do not do the same, either may be called the other one.
        blamed = "[01]" if fault == "model" else victim
        assert re.match(rf"worker {blamed} \(127\.0\.0\.1:\d+\) {said}", found[2]), found[2]
        if begin is not None:
            assert float(found[1]) - float(begin[1]) < WITHIN_S
        # One error, and the last that is shown.
        shown = output.partition("Traceback (most recent call last)")[2]
        assert not any(raw in shown for raw in RAW), output
        assert "The above exception" not in output
        assert "During handling" not in output
        assert "\ntfscale.errors.ClusterError: All workers must take part in every step.\nReceived" in output
        assert "again: A job in which a worker has failed must be started again. | Received: " in output


def test_a_worker_with_fewer_batches_ends_all_before_the_first_step():
    for status, _, output in run_workers_to_the_end(TRAIN, 2, args=("short", 1), waits_for=[0, 1]):
        assert status == 1
        assert re.search(r"Received: \d+ batch\(es\) on worker 1, \d+ batch\(es\) on worker 0, of what `fit`", output)

"""One of two real workers is killed before its first `fit`: what the other one sees."""

import re

import pytest

from tests.processes import run_workers_to_the_end

START = "tests.training.cases_gone_early:start"
# Behind TensorFlow's server, while the link is measured; behind that; behind the model.
MOMENTS = [("server", 1), ("link", 1), ("model", 1), ("model", 0)]


@pytest.mark.parametrize(("moment", "victim"), MOMENTS)
def test_the_survivor_is_told_who(moment, victim):
    survivor = 1 - victim
    ended = run_workers_to_the_end(START, 2, args=(moment, victim), waits_for=[survivor])[survivor]
    assert ended.status == 1
    said = re.search(r"ours: All workers must take part in every step\. \| Received: (.*)", ended.output)
    assert said is not None, ended.output
    gone = rf"worker {victim} \(127\.0\.0\.1:\d+\) is gone: its port refuses connections\."
    assert re.match(gone, said[1]), said[1]
    assert "Graph execution error" not in ended.output.partition("Traceback (most recent call last)")[2]


@pytest.mark.parametrize("victim", [0, 1])
def test_who_has_met_the_others_and_does_not_connect(victim):
    survivor = 1 - victim
    ended = run_workers_to_the_end(START, 2, args=("meeting", victim), waits_for=[survivor])[survivor]
    assert ended.status == 1
    said = "tfscale.errors.ClusterError: All workers must take part in every step.\nReceived: worker "
    _, _, found = ended.output.partition(said)
    assert re.match(
        rf"{victim} \(127\.0\.0\.1:\d+\) has met the others, and has not connected to them in 15 s", found
    ), ended.output

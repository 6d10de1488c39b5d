"""How many steps per call are chosen, by a clock that is told what a step takes."""

import itertools

import pytest

from tests.training.together import Failure, run_together
from tfscale.errors import BatchError
from tfscale.training.call.steps_per_call import (
    HOST_SHARE,
    StepsPerCall,
    check_steps_per_execution,
    steps_for_host_share,
)

CASES = "tests.training.call.cases_steps_per_call"


class Machine:
    """Runs epochs of nothing, by a clock of its own: a call of k steps takes `host_s + k * step_s`."""

    def __init__(self, host_s, step_s, agree=None):
        self.now_s = 0.0
        self.host_s, self.step_s = host_s, step_s
        self.chosen = StepsPerCall(agree, clock=lambda: self.now_s)

    def epoch(self, num_steps, known=True):
        """The calls of an epoch: first step, last step, and how long it took."""
        steps = ((step, step, "data") for step in (range(num_steps) if known else itertools.count()))
        made = []
        for begin, end, data in self.chosen.calls(steps, num_steps if known else None):
            assert data == "data"
            assert self.chosen.count == end - begin + 1
            seconds = self.host_s + self.chosen.count * self.step_s
            self.now_s += seconds
            made.append((begin, end, seconds))
            if begin >= num_steps:
                break
        return made


@pytest.mark.parametrize(
    ("host_s", "step_s", "expected"),
    [
        (0.0, 0.001, 1),
        (0.001, 0.049, 1),
        (0.001, 0.048, 2),
        (0.001, 0.0001, 490),
        # Half a second at the most, however large the host's share.
        (1.0, 0.01, 50),
        (1.0, 10.0, 1),
    ],
)
def test_steps_for_host_share(host_s, step_s, expected):
    assert steps_for_host_share(host_s, step_s) == expected


@pytest.mark.parametrize(
    ("host_s", "step_s"),
    [(0.0005, 0.0001), (0.003, 0.0002), (0.001, 0.02), (0.0001, 0.00001), (0.01, 0.009), (0.0, 0.05)],
)
def test_host_share_falls_below_the_limit(host_s, step_s):
    machine = Machine(host_s, step_s)
    machine.epoch(40_000)
    (*_, before_last, _) = machine.epoch(40_000)
    count = before_last[1] - before_last[0] + 1
    assert host_s / before_last[2] <= HOST_SHARE * 1.001
    # And no more steps than it takes, up to twice as many.
    assert count <= 2 * max(1, (1 / HOST_SHARE - 1) * host_s / step_s + 1)


@pytest.mark.parametrize(("host_s", "step_s"), [(0.5, 0.3), (5.0, 0.02), (0.001, 2.0), (0.9, 0.001)])
def test_no_call_lasts_longer_than_a_second_for_its_number_of_steps(host_s, step_s):
    machine = Machine(host_s, step_s)
    calls = machine.epoch(3000) + machine.epoch(3000)
    assert max((end - begin) * step_s for begin, end, _ in calls) <= 1.0


def test_a_machine_that_slows_down_gets_fewer_steps_at_once():
    machine = Machine(0.001, 0.0001)
    machine.epoch(5000)
    machine.step_s = 0.01
    calls = machine.epoch(5000)
    late = [call for call in calls if call[2] > 1.0]
    assert len(late) <= 1
    assert calls[3][2] <= 1.0


@pytest.mark.parametrize("num_steps", [1, 2, 3, 7, 50, 1001])
def test_every_step_of_an_epoch_is_in_one_call(num_steps):
    machine = Machine(0.001, 0.0001)
    for _ in range(3):
        calls = machine.epoch(num_steps)
        steps = [step for begin, end, _ in calls for step in range(begin, end + 1)]
        assert steps == list(range(num_steps))


def test_unknown_length_is_left_to_the_data():
    calls = Machine(0.001, 0.0001).epoch(500, known=False)
    steps = [step for begin, end, _ in calls for step in range(begin, end + 1)]
    assert steps == list(range(len(steps)))
    assert len(steps) >= 500


def test_workers_take_the_least_and_ask_at_the_same_calls():
    asked = [[], []]

    def agree_of(worker):
        return lambda number: asked[worker].append((machines[worker].chosen._num_calls, number)) or min(number, 5)

    # The second worker takes ten times as long; in truth they wait for each other.
    machines = [Machine(0.001, 0.0001, agree_of(0)), Machine(0.01, 0.001, agree_of(1))]
    for machine in machines:
        machine.epoch(2000)
    calls = [[call for call, _ in of_worker] for of_worker in asked]
    assert calls[0] == calls[1]
    # Less and less often.
    assert len(calls[0]) < 15
    assert machines[0].chosen.count <= 5


@pytest.mark.parametrize("value", ["Auto", 0, -1, 8, True, 1.5, "fast"])
def test_bad_values_are_refused(value):
    with pytest.raises(BatchError, match=r"(?s)\"auto\".*\nReceived: .*compile"):
        check_steps_per_execution(value)


@pytest.fixture(scope="module")
def found():
    (result,) = run_together([(f"{CASES}:calls", (2,))]).values()
    assert not isinstance(result, Failure), result
    return result


def test_fit_grows_and_calls_end_with_the_epoch(found):
    for epoch in found["epochs"]:
        assert [end for _, end in epoch][-1] == found["num_steps"] - 1
        assert [begin for begin, _ in epoch] == [0, *(end + 1 for _, end in epoch[:-1])]
        assert len(epoch) < found["num_steps"]
    assert len(found["epochs"][-1]) < len(found["epochs"][0])
    # An epoch begins with what the one before has found out.
    assert all(end > begin for (begin, end), *_ in found["epochs"][1:])


def test_steps_per_epoch_is_not_exceeded(found):
    assert found["iterations of 50 steps"] == 50


def test_one_trace_serves_all_sizes(found):
    after_first_call, after_all = found["traces"]
    assert 0 < after_first_call == after_all


def test_compile_goes_before(found):
    assert found["compiled with 4"] == [(0, 3), (4, 7), (8, 11)]


def test_on_batches_and_off(found):
    assert found["without"] == [(step, step) for step in range(5)]
    assert found["files"] == {"steps_per_execution": 1}


@pytest.mark.parametrize(
    ("what", "each_step", "each_call"),
    [
        # Eight steps, in calls of one or of four; the states go along with the gradients of a call of one step.
        ("plain", 8, 8 + 2),
        ("accumulation", 2 + 8, 2 + 2),
        # The first step has nothing to send yet; what the last one keeps is sent at the end of the epoch.
        ("double buffering", 7 + 8, 7 + 2),
        ("plain, evaluate", 8, 2),
    ],
)
def test_metric_states_travel_once_per_call(found_reductions, what, each_step, each_call):
    assert [found_reductions[f"{what}, {steps}"] for steps in (1, 4)] == [each_step, each_call]


@pytest.fixture(scope="module")
def found_reductions():
    (result,) = run_together([(f"{CASES}:reductions", (2,))]).values()
    assert not isinstance(result, Failure), result
    return result

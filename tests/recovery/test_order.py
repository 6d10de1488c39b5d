"""Data in another order after a restart: every example of every epoch once, or a line that names the epoch."""

import pytest

from tests.processes import run_workers, run_workers_to_the_end
from tests.recovery.cases_order import DATA, EPOCHS, EXAMPLES
from tests.training.together import Failure, run_together

CASES = "tests.recovery.cases_order"
# The order of a later pass is had again, and so is the place in it.
SAME = {"shuffled with a seed", "shuffled with a seed, endless", "in order", "several steps in a call, in order"}
ENDLESS = {"shuffled with a seed, endless": {"steps_per_epoch": 6}}
SEVERAL = {"steps_per_execution": 2}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    calls = {}
    for name in DATA:
        calls[name] = (name, (8,), ENDLESS.get(name, {}))
    calls["twice"] = ("generator that shuffles", (3, 4), {})
    calls["several steps in a call"] = ("shuffled once, no seed", (5,), SEVERAL)
    calls["several steps in a call, in order"] = ("in order", (5,), SEVERAL)
    made = {
        key: (f"{CASES}:killed", (2, name, plugs, str(tmp_path_factory.mktemp("run")), tuple(options.items())))
        for key, (name, plugs, options) in calls.items()
    }
    found = run_together(list(made.values()), timeout_s=600)
    return {key: found[call] for key, call in made.items()}


def outcome(results, key):
    assert not isinstance(results[key], Failure), results[key]
    return results[key]


@pytest.mark.parametrize("name", [*DATA, "twice", "several steps in a call", "several steps in a call, in order"])
def test_every_example_once_in_every_epoch(results, name):
    found = outcome(results, name)
    assert found["one go"][0] == [EPOCHS] * EXAMPLES
    assert found["seen"] == [EPOCHS] * EXAMPLES


@pytest.mark.parametrize("name", [*DATA, "several steps in a call, in order"])
def test_same_order_or_an_epoch_that_is_named(results, name):
    found = outcome(results, name)
    steps = found["steps"]
    again = [line for line in found["said"] if line.startswith("epoch 2 is begun again: behind step")]
    whole = found["one go"][1][-len(steps) :]
    if name in SAME:
        assert again == []
        # Of the epoch in which it was killed, the steps that were left.
        assert steps[0] == whole[0][-len(steps[0]) :]
        assert steps[1:] == whole[1:]
    elif name == "shuffled, no seed":
        assert [line for line in found["said"] if "the state is saved after epochs only" in line]
    else:
        assert len(again) == 1, found["said"]
        assert len(steps[0]) == 6


def test_an_epoch_may_be_begun_again_twice(results):
    said = outcome(results, "twice")["said"]
    assert len([line for line in said if line.startswith("epoch 1 is begun again")]) == 2


@pytest.mark.parametrize("kind", ["tf.data", "dp.dataset"])
def test_workers_agree_on_what_comes_next(tmp_path, kind):
    case = f"{CASES}:ended"
    run = str(tmp_path / "run")
    first = run_workers_to_the_end(case, 2, args=(run, 1, kind, True), waits_for=[0, 1])
    assert [worker.result[0] for worker in first] == [143, 143]
    for worker in first:
        # Who ends as agreed has not failed: nothing is reported to the others, and no clock runs.
        assert worker.status == 0
        assert "SystemExit" not in worker.output
        assert "retracing" not in worker.output
    [(seen, said), (other, nothing)] = run_workers(case, 2, args=(run, 2, kind, False))
    assert seen == other == [EPOCHS] * EXAMPLES
    assert len([line for line in said if "begun again" in line]) == 1
    assert [line for line in nothing if "begun again" in line] == []

"""After a call that failed, inside of one, and beside one: what works, and what is refused."""

import pytest

from tests.processes import run_case

CASES = "tests.training.cases_calls_that_fail"
FAILURES = {
    "callback": "ValueError",
    "exit": "SystemExit",
    "Ctrl-C": "KeyboardInterrupt",
    "data": "InvalidArgumentError",
    "one replica": "InvalidArgumentError",
    "memory": "DeviceError",
}


@pytest.fixture(scope="module")
def again():
    return run_case(f"{CASES}:again", args=(2,))


@pytest.mark.parametrize("failure", FAILURES)
def test_a_process_trains_again(again, failure):
    error, loss = again[failure]
    assert error == FAILURES[failure]
    assert loss == pytest.approx(again["never failed"][1], rel=1e-6)


def test_calls_in_a_callback():
    found = run_case(f"{CASES}:inside", args=(2,))
    alone = found["outer"]["alone"]
    assert found["outer"]["another model"] == found["outer"]["predict"] == pytest.approx(alone, rel=1e-6)
    assert found["inner"][0] == pytest.approx(alone, rel=1e-6)
    assert found["inner"][2] == 48


def test_a_train_on_batch_of_ones_own_does_not_update_what_it_made_outside_of_the_scope():
    said, updates = run_case(f"{CASES}:trains_by_itself", args=(2, False))
    assert said.startswith("ModelError: What an optimizer updates must be made under the strategy's scope.")
    assert "inside `with dp.scope():`" in said
    assert updates == 0


def test_a_train_on_batch_of_ones_own_runs_as_it_stands():
    assert run_case(f"{CASES}:trains_by_itself", args=(2, True)) == ("no error", 1)


def test_two_threads():
    found = run_case(f"{CASES}:in_two_threads", args=(2,))
    assert found["ended"] == pytest.approx(found["expected"], rel=1e-6)
    for name in ("fit", "evaluate"):
        assert found["said"][name].startswith("DeviceError: One thread at a time may train, evaluate or predict")
        assert (
            f"Received: `{name}` in thread 'another one', while `fit` runs in thread 'MainThread'"
            in (found["said"][name])
        )
    assert found["said"]["afterwards"] == f"no error: {found['expected']:.4f}"


def test_two_threads_of_one_replica():
    found = run_case(f"{CASES}:in_two_threads", args=(1,))
    assert found["said"]["fit"].startswith("no error")


@pytest.fixture(scope="module")
def cells():
    return run_case(f"{CASES}:cells", args=(2,))


@pytest.mark.parametrize(
    "order",
    [
        "evaluate before fit",
        "DataParallel again",
        "another batch",
        "another batch after fit",
        "another batch and back",
        "fit of itself",
        "compile between",
    ],
)
def test_cells_of_a_notebook_in_another_order(cells, order):
    found, expected = cells[order]
    assert found == expected


def test_a_model_of_another_strategy(cells):
    assert cells["one device"][0].startswith("ModelError: The model must be created under the strategy's scope.")


@pytest.fixture(scope="module")
def of_memory():
    return run_case(f"{CASES}:of_memory", args=(2,))


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("TensorFlow", "a tensor of the shape [16777216, 16777216] and type float, 1.05e+06 GiB, on CPU:"),
        ("NumPy", "'Unable to allocate 2.00 PiB for an array with shape (16777216, 16777216)"),
        ("a GPU", "a tensor of the shape [16384, 32768] and type float, 2 GiB, on GPU:1, in `fit`"),
    ],
)
def test_too_little_memory(of_memory, name, asked):
    said = of_memory[name]
    assert said.startswith(
        "DeviceError: What a step needs must fit into the memory of every worker.\nReceived: worker 0 ("
    )
    assert asked in said
    assert 'DataParallel(micro_batch="auto")' in said
    assert "GiB of the host's memory" in said
    assert "Graph execution" not in said


def test_what_is_not_about_memory(of_memory):
    assert of_memory["a quota"].startswith("ResourceExhaustedError")

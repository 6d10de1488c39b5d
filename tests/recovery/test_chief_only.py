"""Callbacks that write files: on the chief alone, without a deadlock."""

import keras
import numpy as np
import pytest

from tests.processes import run_workers
from tfscale import CallbackError, DataParallel
from tfscale.callbacks import ChiefOnly


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    directory = tmp_path_factory.mktemp("files")
    results = run_workers("tests.recovery.cases_chief_only:fit", 2, args=(str(directory),), timeout_s=240)
    return directory, results


def test_the_chief_writes_and_nobody_waits(workers):
    _, (chief, other) = workers
    expected = ["1.keras", "1.weights.h5", "2.keras", "2.weights.h5", "log.csv"]
    assert chief["files"] == expected
    for chief_weight, other_weight in zip(chief["weights"], other["weights"], strict=True):
        np.testing.assert_array_equal(chief_weight, other_weight)


def test_files_hold_the_weights(workers):
    directory, (chief, _) = workers
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, name="dense")])
    import h5py

    with h5py.File(directory / "2.weights.h5") as file:
        saved = np.array(file["dense/vars/0"])
    np.testing.assert_array_equal(saved, chief["weights"][0])
    assert len((directory / "log.csv").read_text().splitlines()) == 3
    assert model.count_params() == 2


def test_called_on_the_chief_alone(workers):
    _, (chief, other) = workers
    batches = [("batch", 0), ("batch", 1)]
    assert chief["calls"] == [
        "train",
        *batches,
        ("epoch", 0, ["loss", "seen"]),
        *batches,
        ("epoch", 1, ["loss", "seen"]),
    ]
    assert other["calls"] == []


def test_what_is_wrapped(workers):
    for result in workers[1]:
        assert result["kinds"] == ["ChiefOnly", "ChiefOnly", "ChiefOnly", "EarlyStopping", "ChiefOnly"]
        assert "must do so on every worker" in result["refused"]


def test_workers_that_would_write_one_file_are_warned(workers):
    for result in workers[1]:
        [said] = result["said"]
        assert said.startswith("Every worker has a CSVLogger of its own: ")
        assert "dp.callbacks([...])" in said


def test_one_worker_needs_no_wrapping(tmp_path):
    given = [keras.callbacks.CSVLogger(tmp_path / "log.csv"), keras.callbacks.BackupAndRestore(tmp_path / "backup")]
    assert DataParallel(global_batch=4, devices=1).callbacks(given) == given


def test_every_hook_is_passed_on():
    hooks = {name for name in dir(keras.callbacks.Callback) if name.startswith("on_")}
    assert hooks <= set(vars(ChiefOnly))


@pytest.mark.parametrize("inner", [None, "CSVLogger", keras.callbacks.CSVLogger])
def test_refuses_what_is_no_callback(inner):
    with pytest.raises(CallbackError, match="takes a Keras callback"):
        ChiefOnly(inner)

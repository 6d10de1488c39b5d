"""A state goes to another host by way of an engine; who watches saves is heard, and told of each."""

import numpy as np
import pytest

from tests.processes import run_case, run_workers
from tfscale.recovery.carrying import pack, unpack
from tfscale.recovery.files import StateFiles
from tfscale.recovery.folder import Saved

CASE = "tests.recovery.cases_carrying:train"


def save(directory, *numbers, start=()):
    files = StateFiles(directory, keep=3)
    for number in numbers:
        array = np.full((3,), number, np.float32)
        files.write(Saved({"number": number, "position": [number, 0]}, [array]), is_start=number in start)
        files.wait()
        assert files.failure is None


def read(directory):
    newest = StateFiles(directory, keep=3).read_newest()
    return newest and newest.facts["number"]


@pytest.mark.parametrize(
    ("numbers", "starts", "packed"),
    [
        ((1, 2, 3), (), ["state-3"]),
        ((1, 2, 3, 4), (1, 2), ["epochs/state-2", "state-4"]),
        ((1, 2, 3), (1, 3), ["epochs/state-3"]),
        ((), (), []),
    ],
)
def test_the_newest_goes_with_the_start_of_its_epoch(tmp_path, numbers, starts, packed):
    save(tmp_path / "run", *numbers, start=starts)
    pack(tmp_path / "run", tmp_path / "run" / "upload")
    found = (tmp_path / "run" / "upload").rglob("*.index")
    assert sorted(str(path.relative_to(tmp_path / "run" / "upload").with_suffix("")) for path in found) == packed
    assert unpack(tmp_path / "run" / "upload", tmp_path / "other") == bool(packed)
    assert read(tmp_path / "other") == (max(numbers) if numbers else None)


@pytest.mark.parametrize(("here", "goes_on"), [((), 3), ((1, 2), 3), ((1, 2, 3, 4), 4)])
def test_the_newer_one_counts(tmp_path, here, goes_on):
    save(tmp_path / "there", 1, 2, 3)
    save(tmp_path / "here", *here)
    pack(tmp_path / "there", tmp_path / "packed")
    assert unpack(tmp_path / "packed", tmp_path / "here") == (goes_on == 3)
    assert read(tmp_path / "here") == goes_on
    # And the run saves on.
    save(tmp_path / "here", 9)
    assert read(tmp_path / "here") == 9


def test_a_watcher_is_told_of_every_save_and_may_ask_for_one(tmp_path):
    # 6 steps an epoch; the first save is that of the start.
    chief, other = run_workers(CASE, 2, args=(str(tmp_path / "a"), str(tmp_path / "kept"), 4))
    assert [step for step, _ in chief["told"]] == [step for step, _ in other["told"]]
    steps = [step for step, _ in chief["told"]]
    assert (steps[0], steps[-1]) == (0, 12)
    assert any(4 <= step < 12 for step in steps[1:-1]), steps
    assert {here for _, here in chief["told"]} == {True}
    assert {here for _, here in other["told"]} == {False}
    assert chief["began_at"] == 0
    # On another host, with what the watcher has kept of the save that it asked for.
    again = run_case(CASE, args=(str(tmp_path / "b"), str(tmp_path / "kept"), None))
    assert again["began_at"] == 12
    np.testing.assert_allclose(again["weights"], chief["weights"], rtol=1e-6)

"""Checkpoints in a store: the newest whole one is used, whatever the store does while one is written."""

import logging
import os
import pathlib
import time

import numpy as np
import pytest

from tests.recovery.memory_store import DIRECTORY, MemoryObjects, refuse
from tfscale.errors import RecoveryError
from tfscale.recovery.folder import Saved
from tfscale.recovery.lease import LeaseTimes
from tfscale.recovery.location import RemotePath
from tfscale.recovery.remote import RemoteDirectory
from tfscale.recovery.store import Store, StoreError

TIMES = LeaseTimes(renew_s=60.0, watch_s=0.3, settle_s=0.0, answer_s=5.0)


@pytest.fixture
def objects():
    return MemoryObjects()


@pytest.fixture
def begin(objects, tmp_path, monkeypatch):
    """Opens the directory as a run that begins; what is open in the end is closed."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    opened = []

    def begin(name=DIRECTORY, **options):
        run = RemoteDirectory(name, 2, **{"open_store": objects.open, **options}, times=TIMES)
        assert run.take() is None
        opened.append(run)
        return run

    yield begin
    objects.fault = lambda verb, name: None
    for run in opened:
        run.release()
    assert list(tmp_path.iterdir()) == []


def save(run, number, **options):
    arrays = [np.full((3, 2), number, np.float32), np.array(number, np.int64)]
    run.files.write(Saved({"number": number, "position": [number, 0]}, arrays), **options)
    run.files.wait()


def read(run):
    found = run.files.read_newest()
    return found and found.facts["number"]


def test_nothing_there(begin, objects):
    assert begin().files.read_newest() is None
    assert objects.names() == ["lock"]


@pytest.mark.parametrize("name", [None, RemotePath("ram://tests/test_remote")])
def test_newest_comes_back_as_it_was(begin, name):
    options = {} if name is None else {"name": name, "open_store": Store}
    run = begin(**options)
    for number in (1, 2, 3):
        save(run, number)
        assert run.files.failure is None
    run.release()
    run = begin(**options)
    found = run.files.read_newest()
    assert found.facts["number"] == 3
    assert found.path.startswith(f"{name or DIRECTORY}/state-")
    np.testing.assert_array_equal(found.arrays[0], np.full((3, 2), 3, np.float32))
    assert [array.dtype for array in found.arrays] == [np.float32, np.int64]
    run.files.delete()
    assert run.files.read_newest() is None


def test_keeps_as_many_as_asked_and_starts_beside_them(begin, objects):
    run = begin()
    save(run, 1, is_start=True)
    for number in (2, 3, 4):
        save(run, number)
    numbers = sorted(name.rpartition("-")[2] for name in objects.names() if name.endswith(".json"))
    assert numbers == ["1.json", "3.json", "4.json"]
    assert run.files.read_start(1).facts["number"] == 1
    assert run.files.read_start(0) is None
    run.release()
    other = begin()
    save(other, 5)
    numbers = sorted(int(name.rpartition("-")[2][:-5]) for name in objects.names() if name.endswith(".json"))
    assert numbers == [1, 4, 5]
    other.files.delete()
    assert objects.names() == ["lock"]


def test_a_manifest_comes_last_and_goes_first(begin, objects):
    run = begin()
    for number in (1, 2, 3):
        save(run, number)
    for verb, last in (("write", True), ("delete", False)):
        of_one = [name.rpartition(".")[2] for done, name in objects.calls if done == verb and "-1." in name]
        assert len(of_one) == 3
        assert (of_one[-1] if last else of_one[0]) == "json"


DAMAGES = {
    "data cut short": ("data-00000-of-00001", lambda content: content[:20]),
    "data changed": ("data-00000-of-00001", lambda content: content[:-1] + bytes([content[-1] ^ 1])),
    "data gone": ("data-00000-of-00001", None),
    "index empty": ("index", lambda content: b""),
    "index gone": ("index", None),
    "manifest empty": ("json", lambda content: b""),
    "manifest cut short": ("json", lambda content: content[:-5]),
    "manifest of a later version": ("json", lambda content: content.replace(b'"format": 1', b'"format": 2')),
}


def damage(objects, number, name):
    suffix, change = DAMAGES[name]
    [path] = [path for path in objects.content if path.endswith(f"-{number}.{suffix}")]
    content = objects.content.pop(path)
    if change is not None:
        objects.content[path] = change(content)


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_one_is_passed_over_loudly(begin, objects, caplog, name):
    run = begin()
    for number in (1, 2):
        save(run, number)
    damage(objects, 2, name)
    with caplog.at_level(logging.ERROR, "tfscale"):
        assert read(run) == 1
    assert "-2 cannot be read and is passed over" in caplog.text
    save(run, 3)
    assert read(run) == 3


def test_all_damaged(begin, objects):
    run = begin()
    for number in (1, 2):
        save(run, number)
        damage(objects, number, "index empty")
    with pytest.raises(RecoveryError, match=r"2 in 'memory://bucket/run', none of which can be read"):
        read(run)


# The plug is pulled when so many objects of the second save were written; its manifest is the third one.
@pytest.mark.parametrize("written", [0, 1, 2])
@pytest.mark.parametrize("before", [None, 1])
def test_killed_before_the_manifest(begin, objects, written, before):
    run = begin()
    if before:
        save(run, before)
    there = dict(objects.content)
    save(run, 2)
    number = 2 if before else 1
    new = [name for verb, name in objects.calls if verb == "write" and f"-{number}." in name]
    objects.content = {**there, **{name: objects.content[name] for name in new[:written]}}
    run.release()
    other = begin()
    assert read(other) == before
    assert [name for name in objects.names() if f"-{number}." in name] == []
    save(other, 3)
    assert read(other) == 3


@pytest.mark.parametrize("failing", ["data-00000-of-00001", "index", "json"])
@pytest.mark.parametrize("when", ["write", "written"])
def test_a_store_that_fails_at_a_write(begin, objects, caplog, failing, when):
    run = begin()
    save(run, 1)

    def fault(verb, name):
        if verb == when and name.endswith(f"-2.{failing}"):
            refuse(verb, name)

    objects.fault = fault
    save(run, 2)
    assert isinstance(run.files.failure, StoreError)
    assert "NOT SAVED" in caplog.text
    assert str(DIRECTORY) in caplog.text
    # A manifest whose writing was not confirmed may be there: it is whole then.
    whole = 2 if (failing, when) == ("json", "written") else 1
    assert read(run) == whole
    assert bool([name for name in objects.names() if "-2." in name]) == (whole == 2)
    save(run, 3)
    assert run.files.failure is None
    assert read(run) == 3


def test_what_does_not_come_back_as_it_was_is_not_kept(begin, objects, caplog):
    run = begin()
    save(run, 1)

    def fault(verb, name):
        if verb == "written" and name.endswith("-2.index"):
            objects.content[name] = objects.content[name][:-1]

    objects.fault = fault
    save(run, 2)
    assert isinstance(run.files.failure, ValueError)
    assert "NOT SAVED" in caplog.text
    assert read(run) == 1


def test_old_ones_that_cannot_be_removed_are_removed_later(begin, objects):
    run = begin()
    objects.fault = lambda verb, name: refuse(verb, name) if verb == "delete" else None
    for number in (1, 2, 3, 4):
        save(run, number)
        assert run.files.failure is None
    objects.fault = lambda verb, name: None
    save(run, 5)
    assert sorted(name[-6] for name in objects.names() if name.endswith(".json")) == ["4", "5"]


def test_a_store_that_does_not_answer_is_not_an_empty_one(begin, objects):
    run = begin()
    save(run, 1)
    before = dict(objects.content)
    for verb in ("list", "read"):
        objects.fault = lambda done, name, verb=verb: refuse(done, name) if done == verb else None
        with pytest.raises(StoreError, match=f"Cannot {verb}"):
            read(run)
    assert objects.content == before


def test_no_room_to_read_is_no_damage(begin, tmp_path, monkeypatch):
    run = begin()
    save(run, 1)

    def write(path, *args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pathlib.Path, "open", write)
    with pytest.raises(StoreError, match=r"No space left on device\. Make room there, or set TMPDIR"):
        read(run)


def test_a_listing_that_is_late(begin, objects):
    run = begin()
    for number in (1, 2, 3):
        save(run, number)
        objects.late = set(objects.content)
    # Nothing was written twice.
    writes = [name for verb, name in objects.calls if verb == "write"]
    assert len(writes) == len(set(writes))
    objects.late = set()
    assert read(run) == 3


def test_a_save_that_hangs_keeps_nobody_waiting(objects, begin, caplog, monkeypatch):
    monkeypatch.setattr("tfscale.recovery.remote._PATIENCE_S", 0.1)
    run = begin()
    goes_on = time.monotonic() + 1.0
    objects.fault = lambda verb, name: time.sleep(max(0.0, goes_on - time.monotonic())) if verb == "write" else None
    start_s = time.monotonic()
    for number in range(1, 20):
        run.files.write(Saved({"number": number}, []))
    assert time.monotonic() - start_s < 0.8
    assert "NOT SAVED" in caplog.text
    assert "the save before has not ended" in caplog.text
    run.files.wait()
    assert read(run) == 1


def test_another_run_that_came_in_is_noticed_before_it_is_too_late(begin, objects, caplog):
    run = begin()
    save(run, 1)
    objects.content[f"{DIRECTORY}/lock"] = b'{"host": "elsewhere"}'
    save(run, 2)
    assert "NOT SAVED" in caplog.text
    assert "belongs to one run at a time" in caplog.text
    assert read(run) == 1


def test_what_a_killed_process_has_left_on_this_host_is_removed(begin, tmp_path):
    paths = {name: tmp_path / f"tfscale-recovery-{name}" for name in ("left", "no lock", "old file", "file")}
    for name, path in paths.items():
        (path.touch if "file" in name else path.mkdir)()
    (paths["left"] / "lock").touch()
    os.utime(paths["old file"], (0, 0))
    save(begin(), 1)
    # That without a lock is somebody else's, or just being made.
    assert [name for name, path in paths.items() if path.exists()] == ["no lock", "file"]
    paths["no lock"].rmdir()
    paths["file"].unlink()

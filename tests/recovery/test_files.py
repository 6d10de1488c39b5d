"""Checkpoints on the disk: the newest whole one is used, whatever happens while one is written."""

import logging
import sys

import numpy as np
import pytest

from tests.processes import CaseError, run_case
from tfscale.errors import RecoveryError
from tfscale.recovery import folder as folder_module
from tfscale.recovery.files import StateFiles
from tfscale.recovery.folder import Saved

CASES = "tests.recovery.cases_files"


@pytest.fixture
def files(tmp_path):
    return StateFiles(tmp_path / "state", keep=2)


def save(files, number):
    files.write(Saved({"number": number}, [np.full((3, 2), number, np.float32), np.array(number, np.int64)]))
    files.wait()
    assert files.failure is None


def indices(tmp_path):
    return sorted(path.name for path in (tmp_path / "state").glob("*.index"))


def test_nothing_there(files, tmp_path):
    assert files.read_newest() is None
    assert not (tmp_path / "state").exists()


def test_newest_comes_back_as_it_was(files):
    for number in (1, 2, 3):
        save(files, number)
    found = files.read_newest()
    assert found.facts == {"number": 3}
    np.testing.assert_array_equal(found.arrays[0], np.full((3, 2), 3, np.float32))
    assert [array.dtype for array in found.arrays] == [np.float32, np.int64]


def test_keeps_as_many_as_asked(files, tmp_path):
    for number in range(1, 5):
        save(files, number)
    assert indices(tmp_path) == ["state-3.index", "state-4.index"]


def test_another_process_keeps_and_counts_on(files, tmp_path):
    for number in (1, 2):
        save(files, number)
    save(StateFiles(tmp_path / "state", keep=2), 3)
    assert indices(tmp_path) == ["state-2.index", "state-3.index"]


DAMAGES = {
    "data cut short": ("data-00000-of-00001", lambda content: content[:20]),
    "data changed": ("data-00000-of-00001", lambda content: bytes(255 - byte for byte in content)),
    "data gone": ("data-00000-of-00001", None),
    "index empty": ("index", lambda content: b""),
    "index cut short": ("index", lambda content: content[: len(content) // 2]),
    "index gone": ("index", None),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_torn_one_is_passed_over_loudly(files, tmp_path, caplog, name):
    suffix, damage = DAMAGES[name]
    for number in (1, 2):
        save(files, number)
    path = tmp_path / "state" / f"state-2.{suffix}"
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))
    with caplog.at_level(logging.ERROR, "tfscale"):
        assert files.read_newest().facts == {"number": 1}
    assert "state-2 cannot be read and is passed over" in caplog.text
    save(files, 3)
    assert files.read_newest().facts == {"number": 3}


def test_all_torn(files, tmp_path):
    for number in (1, 2):
        save(files, number)
    for path in (tmp_path / "state").glob("*.index"):
        path.write_bytes(b"")
    with pytest.raises(RecoveryError, match=r"2 in .*none of which can be read"):
        files.read_newest()


@pytest.mark.parametrize("content", [None, b"", b"garbage {"])
def test_note_of_the_manager_lost(files, tmp_path, content):
    for number in (1, 2):
        save(files, number)
    note = tmp_path / "state" / "checkpoint"
    note.unlink() if content is None else note.write_bytes(content)
    assert StateFiles(tmp_path / "state", keep=2).read_newest().facts == {"number": 2}


def test_leftovers_are_removed(files, tmp_path):
    save(files, 1)
    (tmp_path / "state" / "state-2_temp").mkdir()
    (tmp_path / "state" / "state-2_temp" / "part-00000-of-00001.data").write_bytes(b"half")
    (tmp_path / "state" / "state-2.data-00000-of-00001").write_bytes(b"half")
    (tmp_path / "state" / "of the user").write_text("stays")
    assert files.read_newest().facts == {"number": 1}
    names = {path.name for path in (tmp_path / "state").iterdir()}
    assert names == {"checkpoint", "of the user", "state-1.data-00000-of-00001", "state-1.index"}


def test_killed_during_a_save(tmp_path):
    numbers = [0]
    for _ in range(2):
        with pytest.raises(CaseError):
            run_case(f"{CASES}:save_until_killed", args=(str(tmp_path),), timeout_s=120)
        found = StateFiles(tmp_path, keep=2).read_newest()
        number = found.facts["number"]
        for array in found.arrays:
            np.testing.assert_array_equal(array, np.full((500_000,), number, np.float32))
        # At least the one that was complete before the plug was pulled.
        assert number > numbers[-1]
        numbers.append(number)


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of files")
def test_no_room(tmp_path):
    result = run_case(f"{CASES}:save_without_room", args=(str(tmp_path),))
    assert result["found"] == [(True, 1), (False, 1), (True, 3)]
    [error] = [record for record in result["records"] if record.startswith("ERROR")]
    assert "NOT SAVED" in error
    assert str(tmp_path) in error
    assert not [name for name in result["files"] if "temp" in name]


def test_written_off_the_training_thread():
    assert run_case(f"{CASES}:never_waits") < 0.5


def test_starts_of_epochs_outlive_what_is_saved_within(files, tmp_path):
    files.write(Saved({"position": [1, 0]}, []), is_start=True)
    for step in range(1, 5):
        files.write(Saved({"position": [1, step]}, []))
    files.wait()
    assert files.read_newest().facts == {"position": [1, 4]}
    assert files.read_start(1).facts == {"position": [1, 0]}
    assert files.read_start(0) is None
    files.write(Saved({"position": [2, 0]}, []), is_start=True)
    files.wait()
    assert files.read_newest().facts == {"position": [2, 0]}
    assert files.read_start(1).facts == {"position": [1, 0]}
    files.delete()
    assert files.read_newest() is None
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("keep", [1, 2])
def test_what_does_not_come_back_as_it_was_is_not_kept(tmp_path, caplog, monkeypatch, keep):
    """A disk that loses a bit: the file is changed between the write and the first look at it."""
    files = StateFiles(tmp_path / "state", keep=keep)
    for number in range(1, keep + 1):
        save(files, number)
    flush = folder_module._flush

    def flush_and_change(directory, path):
        flush(directory, path)
        for data in (tmp_path / "state").glob(f"state-{keep + 1}.data-*"):
            data.write_bytes(bytes([data.read_bytes()[0] ^ 1]) + data.read_bytes()[1:])

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR, "tfscale"):
        patch.setattr(folder_module, "_flush", flush_and_change)
        files.write(Saved({"number": keep + 1}, [np.ones(3)]))
        files.wait()
    assert isinstance(files.failure, RecoveryError)
    assert "NOT SAVED" in caplog.text
    assert indices(tmp_path) == [f"state-{number}.index" for number in range(1, keep + 1)]
    caplog.clear()
    assert StateFiles(tmp_path / "state", keep=keep).read_newest().facts == {"number": keep}
    # Nothing is left of the damaged one that would have to be passed over.
    assert not caplog.records
    save(files, keep + 1)
    assert indices(tmp_path) == [f"state-{number}.index" for number in range(2, keep + 2)]


def test_the_older_one_goes_when_the_new_one_was_read_back(tmp_path, monkeypatch):
    files = StateFiles(tmp_path / "state", keep=1)
    save(files, 1)
    verify, there = folder_module._verify, []

    def look_and_verify(path, saved):
        there.extend(indices(tmp_path))
        verify(path, saved)

    monkeypatch.setattr(folder_module, "_verify", look_and_verify)
    save(files, 2)
    assert there == ["state-1.index", "state-2.index"]
    assert indices(tmp_path) == ["state-2.index"]


@pytest.mark.parametrize("name", ["run [1]", "run*?", "a\\b", 'ü "日本"\t{x}%d', "a\nb", "x" * 200])
def test_a_folder_may_have_any_name(tmp_path, name):
    # TensorFlow takes a name for a pattern where it reads.
    files = StateFiles(tmp_path / name, keep=2)
    for number in (1, 2):
        save(files, number)
    assert StateFiles(tmp_path / name, keep=2).read_newest().facts == {"number": 2}


def test_a_name_that_is_too_long_is_named(tmp_path):
    with pytest.raises(RecoveryError, match=r"Received: the directory .*: File name too long\. Look at its name"):
        StateFiles(tmp_path / ("x" * 300), keep=2).read_newest()


def test_what_belongs_to_somebody_else_stays(files, tmp_path):
    directory = tmp_path / "state"
    others = ["state-of-the-art.txt", "state-backups/a", "state-3b.index", "epochs/state-notes.md", "best.index"]
    for name in others:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("of the user")
    # The note of somebody else's `tf.train.CheckpointManager`.
    (directory / "checkpoint").write_text('model_checkpoint_path: "best"\nall_model_checkpoint_paths: "best"\n')
    assert files.read_newest() is None
    for number in range(1, 4):
        save(files, number)
    assert StateFiles(directory, keep=2).read_newest().facts == {"number": 3}
    assert [name for name in others if not (directory / name).exists()] == []


def test_a_folder_may_be_moved(tmp_path):
    for number in (1, 2, 3):
        save(StateFiles(tmp_path / "state", keep=2), number)
    (tmp_path / "state").rename(tmp_path / "moved")
    moved = StateFiles(tmp_path / "moved", keep=2)
    assert moved.read_newest().facts == {"number": 3}
    assert len(list((tmp_path / "moved").glob("*.index"))) == 2

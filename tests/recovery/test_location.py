"""Names of directories, here and in stores."""

from pathlib import Path, PurePosixPath

import pytest

from tfscale.callbacks import Recovery, ScalingReport
from tfscale.errors import RecoveryError
from tfscale.recovery.location import RemotePath, find_directory
from tfscale.scaling import BatchPlan

SCHEMES = ["", "file", "gs", "hdfs", "ram"]


@pytest.mark.parametrize("name", ["runs/a", "/runs/a", "a b", "C:/runs", "x:/y", ".", "a*[b]"])
def test_of_this_host(name):
    here = Path.cwd() / name
    assert find_directory(name, SCHEMES) == here
    assert find_directory(PurePosixPath(name), SCHEMES) == here


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gs://bucket", "gs://bucket"),
        ("gs://bucket/run", "gs://bucket/run"),
        ("gs://bucket/run/", "gs://bucket/run"),
        ("gs://bucket/a b/ü", "gs://bucket/a b/ü"),
        ("hdfs:///user/run", "hdfs:///user/run"),
        ("ram://run", "ram://run"),
        (RemotePath("gs://bucket/run"), "gs://bucket/run"),
    ],
)
def test_of_a_store(name, expected):
    found = find_directory(name, SCHEMES)
    assert (str(found), str(found / "recovery")) == (expected, f"{expected}/recovery")
    assert find_directory(found, SCHEMES) == found.resolve() == found


def test_a_file_url_is_of_this_host(tmp_path):
    assert find_directory(f"file://{tmp_path}/run", SCHEMES) == tmp_path / "run"


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("s3://bucket/run", ["has no file system for s3://, only for file://, gs://", "tensorflow-io", "mount"]),
        ("nope://run", ["has no file system for nope://"]),
        ("GS://bucket/run", ["has no file system for GS://"]),
        (Path("gs://bucket/run"), ["'gs:/bucket/run'", "folded", "'gs://...'"]),
        ("s3:/bucket/run", ["folded"]),
        ("gs://", ["a bucket or host"]),
        ("gs:///", ["a bucket or host"]),
        ("gs://bucket//run", ["empty parts"]),
        ("gs://bucket/../run", ["'..'"]),
        ("gs://bucket/run*", ["any of *?[]"]),
        ("gs://bucket/run\n", ["a bucket or host"]),
        ("file://host/run", ["no host"]),
        ("file://run", ["no host"]),
        ("", ["Received: directory=''", "the name of a directory, as text"]),
        ("a\0b", ["as text"]),
        (None, ["Received: directory=None"]),
        (b"runs", ["Received: directory=b'runs'"]),
    ],
)
def test_no_name(name, parts):
    with pytest.raises(RecoveryError, match="Received: directory=") as caught:
        find_directory(name, SCHEMES)
    assert [part for part in parts if part not in str(caught.value)] == []


def test_a_directory_stays_where_it_was_when_the_script_goes_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = find_directory("run", SCHEMES)
    monkeypatch.chdir("/")
    assert found == tmp_path / "run"


def test_recovery_and_the_report_take_them():
    assert Recovery("gs://bucket/run").settings.directory == RemotePath("gs://bucket/run")
    plan = BatchPlan(global_batch=4, num_replicas=1, reference_batch=2)
    for callback in (Recovery, lambda name: ScalingReport(plan, directory=name)):
        with pytest.raises(RecoveryError, match="has no file system for s3://"):
            callback("s3://bucket/run")

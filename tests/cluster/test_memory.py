import pytest

from tfscale.cluster.memory import read_memory_mib


@pytest.fixture
def proc(tmp_path):
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "statm").write_text("9999 512 3 4 0 5 0\n")
    (tmp_path / "meminfo").write_text("MemTotal: 1 kB\nMemAvailable:   20480 kB\nBuffers: 2 kB\n")
    return tmp_path


def test_read(proc):
    assert read_memory_mib(proc) == (2, 20)


@pytest.mark.parametrize(("file", "text"), [("self/statm", ""), ("self/statm", "a b"), ("meminfo", "MemTotal: 1 kB\n")])
def test_of_another_system(proc, file, text):
    (proc / file).write_text(text)
    assert read_memory_mib(proc) == (0, 0)


def test_no_such_files(tmp_path):
    assert read_memory_mib(tmp_path) == (0, 0)


def test_here():
    used_mib, free_mib = read_memory_mib()
    assert 5 < used_mib < 100_000
    assert free_mib > 0

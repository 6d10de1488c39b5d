import contextlib
import re
import signal
import time
from pathlib import Path

import pytest

from tfscale.launch.memory import count_kills, describe_kill


@pytest.mark.parametrize(
    ("texts", "count"),
    [
        (["nr_free_pages 1\noom_kill 3\nother 2\n"], 3),
        (["oom_kill 3\n", "low 0\noom 5\noom_kill 2\noom_group_kill 7\n"], 5),
        (["oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"], 1),
        (["low 0\n"], 0),
        ([], 0),
    ],
)
def test_count(tmp_path, texts, count):
    files = [tmp_path / str(number) for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    assert count_kills([*files, tmp_path / "not there"]) == count


def test_here():
    assert count_kills() >= 0


@pytest.mark.parametrize(
    ("num_kills", "peak_bytes", "said"),
    [
        (0, 0, "The kernel has killed nothing for want of memory meanwhile."),
        (0, 1 << 30, "It had 1.0 GiB of memory at most. The kernel has killed nothing"),
        (2, 3 << 29, "It had 1.5 GiB of memory at most. The kernel has killed 2 process(es) for want of memory"),
    ],
)
def test_said(num_kills, peak_bytes, said):
    assert describe_kill(num_kills, peak_bytes).startswith(said)
    assert ("`micro_batch`" in describe_kill(num_kills, peak_bytes)) is (num_kills > 0)


@pytest.fixture
def memory_group():
    """A control group of this test's with room for 64 MiB: the file to which a process writes its id to be in it."""
    one = Path("/sys/fs/cgroup/memory/tfscale-test")  # The first version of control groups, and the second.
    group, limit = (one, "memory.limit_in_bytes") if one.parent.is_dir() else (one.parents[1] / one.name, "memory.max")
    try:
        group.mkdir()
        (group / limit).write_text(str(1 << 26))
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"no control group can be made here: {error}")
    yield group / "cgroup.procs"
    for _ in range(100):
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)
    raise AssertionError(f"{group} is still in use")


def test_the_kernel_kills_a_worker(launcher, memory_group):
    eats = (
        f"started()\nif rank == 1:\n    wait_for('started-0*')\n    open({str(memory_group)!r}, 'w').write("
        "str(os.getpid()))\n    eaten = [bytearray(b'1' * (1 << 24)) for _ in range(64)]\ntime.sleep(600)"
    )
    status, _, err = launcher.run(eats, "--workers", "2")
    assert status == 128 + signal.SIGKILL
    said = (
        r"tfscale launch: worker 1 \(127\.0\.0\.1:\d+\) failed first, with signal SIGKILL; the others were stopped\. "
        r"It had \d\.\d GiB of memory at most\. The kernel has killed [1-9]\d* process\(es\) for want of memory "
        "meanwhile, likely this one"
    )
    assert re.match(said, err), err

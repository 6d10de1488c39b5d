"""A process is ended with all that it started."""

import os
import subprocess
import sys
import threading

import pytest

from tfscale.launch.process_group import kill_group, process_group

# Deaf to SIGTERM, as a TensorFlow worker that waits for a peer; its child has the same end of the pipe.
DEAF = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("started", flush=True)
time.sleep(600)
"""


def deadline(process):
    process.wait(0)


def interrupted(process):
    raise KeyboardInterrupt


def block(leave, started, output, writing):
    with process_group([sys.executable, "-c", DEAF], stdout=writing) as process:
        os.close(writing)
        started.append(process)
        assert output.readline() == b"started\n"
        leave(process)


@pytest.mark.parametrize(("leave", "error"), [(deadline, subprocess.TimeoutExpired), (interrupted, KeyboardInterrupt)])
def test_whole_group_ends_with_the_block(leave, error):
    started = []
    reading, writing = os.pipe()
    with open(reading, "rb") as output:
        with pytest.raises(error):
            block(leave, started, output, writing)
        assert started[0].returncode == -9
        # The other end of the pipe is closed when the last of the group has gone.
        assert output.read() == b""


def test_deadline_ends_the_group_while_the_block_waits_for_its_output():
    with process_group([sys.executable, "-c", DEAF], timeout_s=2.0, stdout=subprocess.PIPE) as process:
        assert process.stdout.read() == b"started\n"
        assert process.wait(60) == -9


def test_deadline_that_is_not_reached():
    threads = threading.active_count()
    with process_group([sys.executable, "-c", "pass"], timeout_s=600) as process:
        assert process.wait(60) == 0
    assert threading.active_count() == threads


def test_group_that_is_gone():
    with process_group([sys.executable, "-c", "pass"]) as process:
        assert process.wait(60) == 0
    kill_group(process.pid)

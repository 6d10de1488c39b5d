"""SIGTERM: who hears it, and what becomes of the process. Each case is a process of its own, without TensorFlow."""

import os
import signal
import subprocess
import sys

import pytest

from tests.repository import ROOT

# The first process of a container, as far as it can tell.
FIRST = """
os.getpid = lambda: 1
end_first_process_at_once()
"""
# It waits as in a collective: no handler of Python's runs.
WAIT = "print('ready', flush=True); threading.Thread(target=lambda: time.sleep(60)).run(); print('slept')"
OWN = "signal.signal(signal.SIGTERM, lambda *_: (print('own', flush=True), os._exit(7)))"
LISTEN = "termination = Termination(); termination.start()"
FORK = """
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.write(writer, b".")
    time.sleep(60)
os.read(reader, 1)
os.kill(child, signal.SIGTERM)
ended = os.waitpid(child, 0)[1]
print(os.WTERMSIG(ended), termination.requested)
"""
FORK_THAT_STAYS = """
child = os.fork()
if child == 0:
    time.sleep(60)
termination.stop()
print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, threading.active_count())
os.kill(child, signal.SIGKILL)
"""
AT_ONCE = "tfscale: SIGTERM, and nothing here saves the run. Exit with status 143."
CASES = {
    "first process": ([FIRST, WAIT], 143, f"ready\n{AT_ONCE}"),
    "another one": (["end_first_process_at_once()", WAIT], -signal.SIGTERM, "ready"),
    "its own handler": ([OWN, FIRST, WAIT], 7, "ready\nown"),
    "its own handler, later": ([FIRST, OWN, WAIT], 7, "ready\nown"),
    "after a fit that saves": ([FIRST, LISTEN, "termination.stop()", WAIT], 143, f"ready\n{AT_ONCE}"),
    "own handler after a fit": ([FIRST, OWN, LISTEN, "termination.stop()", WAIT], 7, "ready\nown"),
}


def start(*lines):
    header = (
        "import os, signal, sys, threading, time\n"
        "from tfscale.recovery.termination import Termination, end_first_process_at_once"
    )
    return subprocess.Popen(
        [sys.executable, "-c", "\n".join([header, *lines])],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("name", CASES)
def test_sigterm(name):
    lines, status, said = CASES[name]
    with start(*lines) as process:
        ready = process.stdout.readline()
        os.kill(process.pid, signal.SIGTERM)
        output = ready + process.communicate(timeout=30)[0]
    assert (process.returncode, output.startswith(said)) == (status, True), output


def test_a_fit_that_saves_goes_before():
    noted = "print('ready', flush=True)\nwhile not termination.requested: time.sleep(0.01)\nprint('noted')"
    with start(FIRST, LISTEN, noted) as process:
        process.stdout.readline()
        os.kill(process.pid, signal.SIGTERM)
        assert (process.communicate(timeout=30)[0], process.returncode) == ("noted\n", 0)


@pytest.mark.parametrize(("then", "said"), [(FORK, "15 False\n"), (FORK_THAT_STAYS, "True 1\n")])
@pytest.mark.parametrize("first", [[], [FIRST]])
def test_what_is_forked_is_on_its_own(first, then, said):
    if first:
        then = then.replace("signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, threading.active_count()", "True, 1")
    with start(*first, LISTEN, then) as process:
        assert process.communicate(timeout=30)[0] == said

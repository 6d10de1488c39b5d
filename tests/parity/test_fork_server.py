import contextlib
import os
import signal
import sys
import time

import pytest

from tfscale.parity.fork_server import ForkServer, ForkServerError

# Its children do what they are told; it imports nothing that takes long.
PROGRAM = "import os, sys, time; from tfscale.parity.fork_server import wait_for_call; exec(wait_for_call())"


@pytest.fixture
def server():
    started = ForkServer((sys.executable, "-c", PROGRAM), env={**os.environ, "SERVER": "here"})
    yield started
    started.close()


@pytest.fixture
def start(server, tmp_path):
    """Starts a child that runs Python code; returns it and its output, as long as it runs and after."""
    paths = (tmp_path / str(number) for number in range(100))
    running = []

    def start(code, **env):
        path = next(paths)
        with path.open("wb") as output:
            running.append(server.start(code, env=env or server.env, output=output))
        return running[-1], path

    yield start
    for process in running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.communicate()


def _outputs(imports, code, directory, count=1):
    """What `count` children of a server that does `imports` write when they do `code`."""
    server = ForkServer((sys.executable, "-c", f"{imports}; {PROGRAM}"), env=os.environ)
    for number in range(count):
        with (directory / str(number)).open("wb") as output:
            server.start(code, env=os.environ, output=output).communicate()
    server.close()
    return [(directory / str(number)).read_text() for number in range(count)]


def _status(process):
    deadline_s = time.monotonic() + 30
    while (status := process.poll()) is None and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return status


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("pass", 0),
        ("sys.exit(3)", 3),
        ("os._exit(4)", 4),
        ("raise ValueError", 1),
        ("os.kill(os.getpid(), 9)", -9),
        ("os.abort()", -6),
    ],
)
def test_status(start, code, status):
    process, _ = start(code)
    assert _status(process) == status
    assert _status(process) == status


def test_many_at_a_time(start):
    processes = [start(f"time.sleep(0.3); sys.exit({number})")[0] for number in range(20)]
    assert [_status(process) for process in processes] == list(range(20))


def test_output(start):
    process, path = start("print('out', flush=True); print('error', file=sys.stderr)")
    assert _status(process) == 0
    assert path.read_text() == "out\nerror\n"


def test_standard_input_ends_when_its_owner_lets_go(start):
    process, path = start("print(sys.stdin.read(), 'noticed')")
    time.sleep(0.1)
    assert process.poll() is None
    process.communicate()
    assert (process.poll(), path.read_text()) == (0, " noticed\n")


def test_environment_is_what_was_given(start):
    names = "print(sorted(name for name in os.environ if name in ('SERVER', 'GIVEN', 'PATH')))"
    for env, expected in (({"GIVEN": "1"}, "['GIVEN']"), ({"PATH": ""}, "['PATH']")):
        process, path = start(names, **env)
        assert _status(process) == 0
        assert path.read_text().strip() == expected


def test_what_imports_have_set_stays(tmp_path):
    imports = "import os; os.environ['SET'] = 'by an import'"
    assert _outputs(imports, "print(os.environ['SET'])", tmp_path) == ["by an import\n"]


def test_child_is_a_session_with_no_file_of_the_server(start):
    process, path = start("print(os.getsid(0) == os.getpid(), sorted(os.listdir('/proc/self/fd')))")
    assert _status(process) == 0
    # The last one is that of the listing.
    assert path.read_text() == "True ['0', '1', '2', '3']\n"


def test_random_numbers_are_a_childs_own(tmp_path):
    code = "print(*(sys.modules[name].random() for name in ('random', 'numpy.random')))"
    first, second = _outputs("import random, numpy.random", code, tmp_path, count=2)
    assert len({*first.split(), *second.split()}) == 4


def test_server_that_cannot_import(tmp_path):
    server = ForkServer((sys.executable, "-c", "import absent_module"), env=os.environ)
    with (tmp_path / "output").open("wb") as output, pytest.raises(ForkServerError, match="absent_module"):
        server.start("pass", env=os.environ, output=output)
    server.close()
    assert not server.alive()


def test_server_that_does_not_answer(tmp_path):
    server = ForkServer((sys.executable, "-c", "import time; time.sleep(600)"), env=os.environ, timeout_s=0.2)
    with (tmp_path / "output").open("wb") as output, pytest.raises(ForkServerError, match=r"no answer within 0.2 s"):
        server.start("pass", env=os.environ, output=output)
    server._process.kill()
    server.close()


def test_server_that_is_killed(server, start):
    process, _ = start("time.sleep(600)")
    os.kill(server.pid, signal.SIGKILL)
    with pytest.raises(ForkServerError, match="it is gone"):
        _status(process)
    with pytest.raises(ForkServerError, match="it is gone"):
        start("pass")


def test_server_ends_with_its_owner(server):
    assert server.alive()
    server.close()
    assert not server.alive()

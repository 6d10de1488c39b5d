"""Fork a process that has imported TensorFlow, in place of starting one that has to import it again.

Importing TensorFlow takes five seconds of processor time; a fork takes a hundredth of one. Measured with
TensorFlow 2.21: importing it, Keras and tfscale starts no thread but OpenBLAS's, which survive a fork, and
leaves the devices, the random states of TensorFlow and of Keras, and the context for the first use. So a
server imports them and starts nothing; each of its children is the process that a fresh one would be:
its own session, environment, standard streams and random state, and an exit status that is told.
"""

import contextlib
import gc
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from tfscale.errors import ParityError

_MESSAGE_BYTES = 1024
_END_TIMEOUT_S = 10.0
_SHOWN_CHARACTERS = 4000


class ForkServerError(ParityError):
    """The server did not start, or is gone; the message shows what it wrote."""


def can_fork() -> bool:
    """Whether a process with numpy in it may be forked here: not on macOS, whose Accelerate breaks."""
    return sys.platform == "linux"


class ForkServer:
    """A process that imports, and is forked on request. It ends when `close` is called or this process is gone.

    Args:
        argv: A program that imports what its children need, then calls `wait_for_call`.
        env: Its whole environment. A variable that is read when something is imported acts on the children as
            it is here, whatever they are given.
        cwd: Its working directory, and its children's; by default this process's.
        timeout_s: Seconds that it may take to answer; the first answer comes when everything is imported.
    """

    def __init__(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path | None = None, timeout_s: float = 120.0
    ) -> None:
        self.env = dict(env)
        self._statuses: dict[int, int] = {}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115, closed by `close`
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(timeout_s)
        with theirs:
            self._process = subprocess.Popen(
                argv,
                env=self.env,
                cwd=cwd,
                stdin=theirs.fileno(),
                stdout=self._log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._process.pid

    def alive(self) -> bool:
        """Whether the server runs."""
        return self._process.poll() is None

    def start(self, call: Any, *, env: Mapping[str, str], output: BinaryIO) -> "ForkedProcess":
        """Forks the server; the child's `wait_for_call` returns `call`.

        Args:
            call: What can be pickled.
            env: The whole environment of the child, beside what importing has set.
            output: The file for its standard output and standard error.

        Raises:
            ForkServerError: The server is gone or does not answer.
        """
        readable, stdin = os.pipe()
        try:
            with tempfile.TemporaryFile() as file:
                pickle.dump((call, dict(env), self.env), file)
                file.flush()
                fds = [file.fileno(), readable, output.fileno()]
                try:
                    socket.send_fds(self._channel, [b"call"], fds)
                except OSError as error:
                    raise self._gone("it is gone") from error
            while (pid := self._receive()) is None:
                pass
        except BaseException:
            os.close(stdin)
            raise
        finally:
            os.close(readable)
        self._statuses.pop(pid, None)
        return ForkedProcess(self, pid, stdin)

    def status(self, pid: int, *, wait: bool = False) -> int | None:
        """Returns the exit status of a child, negative for a signal; None while it runs.

        Raises:
            ForkServerError: The server is gone or, with `wait`, does not answer.
        """
        while pid not in self._statuses and (wait or select.select([self._channel], [], [], 0)[0]):
            self._receive()
        return self._statuses.get(pid)

    def close(self) -> None:
        """Ends the server. Its children end by themselves when their standard input does."""
        self._channel.close()
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _receive(self) -> int | None:
        """Takes one message: the process id of a new child, or the status of one that has ended."""
        try:
            message = self._channel.recv(_MESSAGE_BYTES)
        except TimeoutError as error:
            raise self._gone(f"no answer within {self._channel.gettimeout():g} s") from error
        except OSError as error:
            raise self._gone("it is gone") from error
        if not message:
            raise self._gone("it is gone")
        pid, status = pickle.loads(message)
        if status is None:
            return int(pid)
        self._statuses[pid] = status
        return None

    def _gone(self, what: str) -> ForkServerError:
        self._log.seek(0)
        shown = self._log.read().decode(errors="replace")[-_SHOWN_CHARACTERS:]
        return ForkServerError(
            "The process that others are forked from must stay until they have ended.\n"
            f"Received: {what}. Look at its output, and whether there is memory enough:\n{shown}"
        )


class ForkedProcess:
    """A child of the server, with the methods of `subprocess.Popen` that its users need.

    Args:
        server: The server.
        pid: Its process id, and that of its process group.
        stdin: The writing end of its standard input.
    """

    def __init__(self, server: ForkServer, pid: int, stdin: int) -> None:
        self.pid = pid
        self._server = server
        self._stdin: int | None = stdin

    def poll(self) -> int | None:
        """Returns the exit status, negative for a signal; None while it runs."""
        return self._server.status(self.pid)

    def communicate(self) -> None:
        """Closes its standard input and waits until it has ended."""
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None
        # Of a server that is gone nobody hears how its children ended.
        with contextlib.suppress(ForkServerError):
            self._server.status(self.pid, wait=True)


def wait_for_call() -> Any:
    """Serves until the process that started this one is gone; returns in each child, with its call.

    A child knows nothing of the server: it is a session of its own, and has the standard streams and the
    environment that it was given.
    """
    # What is imported stays for good: the garbage collector of a child need not look through it.
    gc.freeze()
    # Standard input is the channel; each child gets another one.
    channel = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    woken, wake = socket.socketpair()
    with channel, woken, wake:
        woken.setblocking(False)
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        fds = _serve(channel, woken)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return _become(fds)


def _serve(channel: socket.socket, woken: socket.socket) -> list[int]:
    """Returns in each child, with its file descriptors."""
    while True:
        ready, _, _ = select.select([channel, woken], [], [])
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                woken.recv(_MESSAGE_BYTES)
            _tell_statuses(channel)
        if channel in ready:
            message, fds, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, 3)
            if not message:
                os._exit(0)
            pid = _fork()
            if pid == 0:
                return fds
            for fd in fds:
                os.close(fd)
            _tell(channel, pid, None)


def _fork() -> int:
    """Forks; the child is the leader of its session when this returns in the parent."""
    readable, writable = os.pipe()
    with warnings.catch_warnings():
        # Since Python 3.12, because there are threads: OpenBLAS's, which are ready for it.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os.setsid()
    os.close(writable)
    if pid != 0:
        os.read(readable, 1)
    os.close(readable)
    return pid


def _tell_statuses(channel: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            _tell(channel, ended[0], os.waitstatus_to_exitcode(ended[1]))


def _tell(channel: socket.socket, pid: int, status: int | None) -> None:
    # The next reading finds that nobody is there any more, and ends the server.
    with contextlib.suppress(BrokenPipeError):
        channel.send(pickle.dumps((pid, status)))


def _become(fds: Sequence[int]) -> Any:
    """Makes this copy of the server the process that was asked for, and returns its call."""
    file, stdin, output = fds
    for source, target in ((stdin, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(stdin)
    os.close(output)
    with open(file, "rb") as whole:
        whole.seek(0)
        call, env, env_of_server = pickle.load(whole)
    set_by_imports = {name: value for name, value in os.environ.items() if env_of_server.get(name) != value}
    env = set_by_imports | env
    for name in os.environ.keys() - env.keys():
        del os.environ[name]
    os.environ.update(env)
    # Python's own generator starts anew after a fork, and TensorFlow's has not started; NumPy's would give
    # all children the same numbers.
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed()
    return call

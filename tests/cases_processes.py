"""The cases that test_processes.py runs; none of them needs TensorFlow."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

from tfscale import resolve_cluster


def add(left, right):
    return left + right


def nothing():
    return None


def fail():
    raise ValueError("on purpose")


def warn():
    warnings.warn("on purpose", UserWarning, stacklevel=1)


def exit_silently():
    os._exit(0)


def environment(name):
    return os.environ.get(name)


def end_by(signal_number):
    os.kill(os.getpid(), signal_number)


def streams():
    print("to the output", flush=True)
    print("an error", file=sys.stderr)
    raise SystemExit(7)


def origin():
    """Which process started this one, whether it leads a session, and numbers that no other process has."""
    numbers = (random.random(), float(np.random.random()))
    return os.getppid(), os.getsid(0) == os.getpid(), numbers


def order_of_hashes():
    return hash("a string")


def tell_and_kill_server(directory):
    _tell_pids(directory)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


def tell_and_sleep(directory):
    _tell_pids(directory)
    time.sleep(600)


def compute(seconds):
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        pass
    return "done"


def sleep_deaf_to_sigterm(pid_file):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(pid_file).write_text(f"{os.getpid()} {child.pid}")
    time.sleep(600)


def meet():
    """Every worker tells rank 0 its rank; rank 0 returns what it heard."""
    spec = resolve_cluster()
    host, port = spec.workers[0].split(":")
    if spec.is_chief:
        with socket.create_server((host, int(port))) as server:
            return sorted(_hear(server) for _ in range(spec.num_workers - 1))
    return _tell(host, int(port), spec.rank)


def fail_on_rank_1():
    if resolve_cluster().rank == 1:
        raise ValueError("on purpose")
    time.sleep(600)


def _tell_pids(directory):
    partial = Path(directory, "partial")
    partial.write_text(f"{os.getpid()} {os.getppid()}")
    partial.rename(Path(directory, "pids"))


def _hear(server):
    connection, _ = server.accept()
    with connection:
        return int(connection.recv(16))


def _tell(host, port, rank):
    while True:
        try:
            with socket.create_connection((host, port)) as connection:
                connection.sendall(str(rank).encode())
                return rank
        except ConnectionRefusedError:
            time.sleep(0.02)

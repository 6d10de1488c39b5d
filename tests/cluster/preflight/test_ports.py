import os
import socket
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest

from tfscale import ClusterError
from tfscale.cluster.preflight import ports

only_linux = pytest.mark.skipif(not psutil.LINUX, reason="elsewhere root alone is told")

# As psutil tells them: a listener on every interface, one on the loopback, and a connection that uses the same port.
HERE, PEER = SimpleNamespace(ip="127.0.0.1", port=2222), SimpleNamespace(ip="127.0.0.1", port=54321)
EVERYWHERE = SimpleNamespace(ip="0.0.0.0", port=2222)
TABLE = [
    SimpleNamespace(family=socket.AF_INET, laddr=EVERYWHERE, raddr=(), status="LISTEN", pid=11),
    SimpleNamespace(
        family=socket.AF_INET, laddr=SimpleNamespace(ip="127.0.0.1", port=8080), raddr=(), status="LISTEN", pid=None
    ),
    SimpleNamespace(family=socket.AF_INET, laddr=HERE, raddr=PEER, status="ESTABLISHED", pid=13),
]
TABLE6 = [
    SimpleNamespace(
        family=socket.AF_INET6, laddr=SimpleNamespace(ip="::1", port=2222), raddr=(), status="LISTEN", pid=14
    )
]


@pytest.mark.parametrize(
    ("connections", "port", "found"),
    [
        (TABLE, 2222, [("0.0.0.0:2222", 11)]),
        (TABLE, 8080, [("127.0.0.1:8080", None)]),
        (TABLE, 1, []),
        (TABLE6, 2222, [("[::1]:2222", 14)]),
        ([*TABLE, *TABLE6], 2222, [("0.0.0.0:2222", 11), ("[::1]:2222", 14)]),
        ([], 2222, []),
    ],
)
def test_listeners(connections, port, found):
    assert ports.select_listeners(connections, port) == found


def test_port_that_is_freed_in_time():
    with socket.create_server(("", 0)) as held:
        port = held.getsockname()[1]
    ports.listen(port, "worker 0", grace_s=0).close()


@only_linux
@pytest.mark.parametrize(
    ("family", "host", "shown"), [(socket.AF_INET, "127.0.0.1", "127.0.0.1"), (socket.AF_INET6, "::1", "[::1]")]
)
def test_holder_is_found(family, host, shown):
    if family == socket.AF_INET6 and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6")
    with socket.create_server((host, 0), family=family) as held:
        port = held.getsockname()[1]
        [holder] = ports.find_holders(port)
        assert (holder.address, holder.pid) == (f"{shown}:{port}", os.getpid())
        assert "python" in holder.command
        with pytest.raises(ClusterError, match=rf"Port {port} of this host must be free for worker 3"):
            ports.listen(port, "worker 3", grace_s=0)


@only_linux
def test_command_line_of_a_holder_can_be_printed():
    listen = "import socket; a = socket.create_server(('127.0.0.1', 0)); print(a.getsockname()[1], flush=True); input()"
    command = [sys.executable.encode(), b"-c", listen.encode(), b"caf\xe9", b"x" * 500]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        [holder] = ports.find_holders(int(process.stdout.readline()))
        process.communicate(b"\n", timeout=60)
    assert holder.pid == process.pid
    assert "caf\ufffd x" in holder.command
    assert len(holder.command) == 200


@pytest.mark.parametrize("error", [psutil.AccessDenied(), FileNotFoundError("/proc/net/tcp")])
def test_system_that_does_not_tell_names_nobody(monkeypatch, error):
    def refuse(kind):
        raise error

    monkeypatch.setattr(psutil, "net_connections", refuse)
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        assert ports.find_holders(port) == []
        with pytest.raises(ClusterError, match=r"Received: it is in use by another process\. Wait"):
            ports.listen(port, "worker 3", grace_s=0)


@pytest.mark.parametrize("error", [psutil.AccessDenied(14), psutil.NoSuchProcess(14), psutil.ZombieProcess(14)])
def test_holder_whose_command_line_cannot_be_read(monkeypatch, error):
    def refuse(process):
        raise error

    monkeypatch.setattr(psutil, "net_connections", lambda kind: TABLE6)
    monkeypatch.setattr(psutil, "Process", lambda pid: SimpleNamespace(cmdline=lambda: refuse(pid)))
    assert ports.find_holders(2222) == [ports.PortHolder("[::1]:2222", 14)]


def test_holder_of_another_user(monkeypatch):
    monkeypatch.setattr(psutil, "net_connections", lambda kind: TABLE)
    assert ports.find_holders(8080) == [ports.PortHolder("127.0.0.1:8080")]


def test_description_of_holders():
    assert str(ports.PortHolder("0.0.0.0:1", 5, "python a.py")) == "process 5 (python a.py), which listens on 0.0.0.0:1"
    assert "another user" in str(ports.PortHolder("0.0.0.0:1"))

import socket
from pathlib import Path

import pytest

from tfscale import ClusterError
from tfscale.cluster.preflight import ports

# Of a real machine: a listener on every interface, one on the loopback, and a connection that uses the same port.
TABLE = """
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:08AE 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1 0 100 0 0 10 0
   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12 1 0 100 0 0 10 0
   2: 0100007F:08AE 0100007F:D431 01 00000000:00000000 00:00000000 00000000  1000        0 13 1 0 20 4 30 10 -1
""".splitlines()
TABLE6 = ["0: 00000000000000000000000001000000:08AE 0:0 0A 0:0 00:0 0 1000 0 14 1"]


@pytest.mark.parametrize(
    ("lines", "port", "found"),
    [
        (TABLE, 2222, [("0.0.0.0:2222", "11")]),
        (TABLE, 8080, [("127.0.0.1:8080", "12")]),
        (TABLE, 1, []),
        (TABLE6, 2222, [("[::1]:2222", "14")]),
        ([], 2222, []),
    ],
)
def test_listeners(lines, port, found):
    assert ports.parse_listeners(lines, port) == found


def test_port_that_is_freed_in_time():
    with socket.create_server(("", 0)) as held:
        port = held.getsockname()[1]
    ports.listen(port, "worker 0", grace_s=0).close()


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="only Linux tells")
def test_holder_is_found():
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        [holder] = ports.find_holders(port)
        assert holder.address == f"127.0.0.1:{port}"
        assert "python" in holder.command
        with pytest.raises(ClusterError, match=rf"Port {port} of this host must be free for worker 3"):
            ports.listen(port, "worker 3", grace_s=0)


def test_description_of_holders():
    assert str(ports.PortHolder("0.0.0.0:1", 5, "python a.py")) == "process 5 (python a.py), which listens on 0.0.0.0:1"
    assert "another user" in str(ports.PortHolder("0.0.0.0:1"))

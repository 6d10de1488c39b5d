import socket

import pytest

from tfscale import LaunchError
from tfscale.launch.own_ranks import find_own_ranks, is_this_host, same_host

ADDRESSES = ("a:1", "b:1", "a:2", "[::1]:1")


@pytest.mark.parametrize(("own", "ranks"), [("a", (0, 2)), ("b", (1,)), ("::1", (3,))])
def test_own_ranks(own, ranks):
    assert find_own_ranks(ADDRESSES, lambda host: host == own) == ranks
    assert same_host(ADDRESSES, ranks[0]) == ranks


def test_host_that_is_not_listed():
    with pytest.raises(LaunchError, match=r"Received: a:1, b:1; this host is '.*'\. Write its name .* or add --rank"):
        find_own_ranks(["a:1", "b:1"], lambda host: False)


@pytest.mark.parametrize("name", ["n01", "n01.example.org"])
@pytest.mark.parametrize(
    ("host", "is_own"),
    [("n01", True), ("localhost", True), ("127.0.0.1", True), ("192.0.2.1", False), ("n02", False), ("n0", False)],
)
def test_names_and_addresses_of_this_host(monkeypatch, name, host, is_own):
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    assert is_this_host(host) == is_own


def test_full_name(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "n01")
    assert is_this_host("n01.example.org")
    monkeypatch.setattr(socket, "gethostname", lambda: "n01.example.org")
    assert is_this_host("n01.example.org")
    assert not is_this_host("n01.example.com")

import socket

import pytest

from tfscale.launch.ports import free_addresses


@pytest.mark.parametrize("num_addresses", [0, 1, 5])
def test_addresses(num_addresses):
    addresses = free_addresses(num_addresses)
    assert len(set(addresses)) == num_addresses
    assert all(address.startswith("127.0.0.1:") for address in addresses)


def test_they_are_free():
    for address in free_addresses(3):
        with socket.create_server(("127.0.0.1", int(address.partition(":")[2]))):
            pass


def test_used_ones_do_not_come_back():
    used = set()
    for _ in range(50):
        addresses = free_addresses(2, used)
        assert used.isdisjoint(addresses)
        used.update(addresses)
    assert len(used) == 100

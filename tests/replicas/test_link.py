import re

import pytest

from tests.processes import run_workers
from tfscale.replicas.communication import measures_link
from tfscale.replicas.link import Link, describe_link, least_pack_bytes
from tfscale.replicas.packs import Packing

CASES = "tests.replicas.cases_link"
KIB, MIB = 2**10, 2**20


@pytest.mark.parametrize(
    ("latency_s", "bytes_per_s", "device_type", "expected"),
    [
        # 8 x 0.5 ms x 125 MB/s = 500 kB
        (0.0005, 125e6, "CPU", 512 * KIB),
        (0.0005, 12.5e6, "CPU", 256 * KIB),
        (0.001, 400e6, "CPU", 4 * MIB),
        (0.1, 400e6, "CPU", 8 * MIB),
        # 8 x 30 us x 100 GB/s = 24 MB, which is what PyTorch takes
        (0.00003, 100e9, "GPU", 32 * MIB),
        (0.00003, 10e9, "GPU", 2 * MIB),
        (0.0, 1e9, "GPU", 256 * KIB),
    ],
)
def test_packs_take_several_times_the_latency(latency_s, bytes_per_s, device_type, expected):
    assert least_pack_bytes(Link(latency_s, bytes_per_s), device_type) == expected


@pytest.mark.parametrize(("idle", "expected"), [(1.0, 512 * KIB), (0.5, MIB), (0.1, 4 * MIB), (0.0, 8 * MIB)])
def test_only_a_wait_can_be_made_use_of(idle, expected):
    # What keeps the processor busy is not hidden behind computation, and each pack takes some.
    assert least_pack_bytes(Link(0.0005, 125e6, idle), "CPU") == expected
    assert least_pack_bytes(Link(0.0005, 125e6, idle), "GPU") == 512 * KIB


@pytest.mark.parametrize(
    ("devices", "num_workers", "bytes_per_pack", "expected"),
    [
        (["CPU:0"], 1, None, False),
        (["CPU:0", "CPU:1"], 1, None, False),
        (["CPU:0"], 2, None, True),
        (["CPU:0"], 2, 0, False),
        (["CPU:0"], 2, 1000, True),
        (["GPU:0"], 1, None, False),
        (["GPU:0", "GPU:1"], 1, None, True),
        (["GPU:0"], 2, 2**25, True),
    ],
)
def test_what_has_a_link(devices, num_workers, bytes_per_pack, expected):
    assert measures_link(devices, num_workers, Packing(bytes_per_pack)) is expected


def test_workers_find_the_same():
    first, second = run_workers(f"{CASES}:measured", 2)
    assert first == second
    assert first["is_right"]
    assert 1e-6 < first["latency_s"] < 1
    assert 1e5 < first["bytes_per_s"] < 1e12
    assert 0 <= first["idle"] <= 1
    assert re.fullmatch(
        r"Link: latency [\d.]+ ms, [\d.e+]+ MB/s \(ring\)\. "
        r"Gradients travel in packs of at least [\d.]+ MB\.",
        first["said"],
    )
    # 250,500 numbers of four bytes.
    assert first["reduction_s"] == first["of_a_quarter_million"] > first["latency_s"]
    # Without time, what is known by then is used.
    assert first["hurried"][0] is None
    assert first["own"][0] == 5000


def test_who_chooses_is_not_measured():
    assert run_workers(f"{CASES}:not_measured", 2) == [[None], [None]]


def test_nothing_is_said_of_what_was_not_measured():
    class Strategy:
        pass

    assert describe_link(Strategy()) is None

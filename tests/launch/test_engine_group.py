"""Workers that an engine has started, here places with an environment each, are given one job."""

import os
import socket

import pytest

from tfscale.cluster import resolve_cluster
from tfscale.cluster.secret import SECRET
from tfscale.launch.engine_group import hear_last_words, join_workers


class Group:
    """Worker i is on `hosts[i]`, with `cores[i]`; what it does to its environment is its own."""

    def __init__(self, monkeypatch, hosts, cores):
        self._monkeypatch = monkeypatch
        self.environs = [
            {"PLACE_HOST": host, "PLACE_CORES": str(count)} for host, count in zip(hosts, cores, strict=True)
        ]

    def __len__(self):
        return len(self.environs)

    def execute(self, func, *args):
        return [self.execute_single_async(rank, func, *args) for rank in range(len(self))]

    def execute_single_async(self, worker_index, func, *args):
        with self._monkeypatch.context() as patch:
            patch.setattr(os, "environ", self.environs[worker_index])
            return func(*args)


def host():
    return os.environ["PLACE_HOST"]


def cores():
    return int(os.environ["PLACE_CORES"]) or None


def join(monkeypatch, hosts, counts):
    group = Group(monkeypatch, hosts, counts)
    join_workers(group, "Ray", host_of=host, cores_of=cores, wait=lambda started: started)
    return group.environs


@pytest.mark.parametrize("hosts", [["10.0.0.1"], ["10.0.0.1", "10.0.0.2", "10.0.0.1"], ["fd00::1"] * 3])
def test_each_worker_finds_itself_in_one_list(monkeypatch, hosts):
    environs = join(monkeypatch, hosts, [1] * len(hosts))
    specs = [resolve_cluster(environ) for environ in environs]
    assert [spec.rank for spec in specs] == list(range(len(hosts)))
    assert len({spec.workers for spec in specs}) == 1
    addresses = [address.rpartition(":") for address in specs[0].workers]
    assert [each[0].strip("[]") for each in addresses] == hosts
    assert len(set(specs[0].workers)) == len(hosts)
    for *_, port in addresses:
        with socket.create_server(("", int(port))):
            pass


def test_they_share_a_secret_that_no_other_job_has(monkeypatch):
    jobs = [{environ[SECRET] for environ in join(monkeypatch, ["a", "a"], [1, 1])} for _ in range(2)]
    assert [len(job) for job in jobs] == [1, 1]
    assert jobs[0] != jobs[1]


def test_threads_are_the_cores_of_a_worker_or_left_alone(monkeypatch):
    four, alone = join(monkeypatch, ["a", "b"], [4, 0])
    assert (four["TF_NUM_INTRAOP_THREADS"], four["TF_NUM_INTEROP_THREADS"]) == ("4", "4")
    assert not [name for name in alone if "THREADS" in name]


def test_survivors_are_heard_once_one_is_gone(monkeypatch):
    group = Group(monkeypatch, ["a", "a", "b", "c"], [1] * 4)
    monkeypatch.setattr(group, "execute_single_async", lambda rank, func, *args: (rank, func, args))
    gone = set()

    def wait_some(started, timeout_s):
        assert 0 < timeout_s < 30
        return {place: func(*args) for place, (rank, func, args) in enumerate(started) if rank not in gone}

    words = iter(["worker 1 is gone", None, "worker 1 is gone"])
    hear = {"speak": lambda timeout_s: next(words) if timeout_s else None, "wait_some": wait_some}
    # A group that is ended because it shall be a larger one is not asked.
    assert hear_last_words(group, **hear) == {}
    gone.add(1)
    # The second of the living says nothing.
    assert hear_last_words(group, **hear) == {"worker 1 is gone": [0, 3]}

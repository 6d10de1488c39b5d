"""Who is missed, who is wrong, and how long it takes to find out."""

import signal
import socket
import subprocess
import sys
import time

import pytest

from tests.cluster.preflight.meetings import Worker, run_all
from tests.repository import ROOT
from tfscale import ClusterSpec
from tfscale.launch.ports import free_addresses


@pytest.mark.parametrize("num_workers", [2, 3, 8])
def test_all_are_there(num_workers):
    addresses, workers = run_all(num_workers, facts={rank: {"seed": "1"} for rank in range(num_workers)})
    assert [worker.error for worker in workers] == [""] * num_workers
    # TensorFlow's server comes next, on the same ports.
    for address in addresses:
        socket.create_server(("", int(address.rpartition(":")[2]))).close()


def test_costs_little_when_all_is_well():
    # The best of several: the others measure what else the machine was doing.
    assert min(max(worker.took_s for worker in run_all(2)[1]) for _ in range(5)) < 0.1


@pytest.mark.parametrize("late", [0, 1, 2])
def test_late_worker_is_waited_for(late):
    addresses = free_addresses(3)
    workers = [Worker(addresses, rank, delay_s=1.0 if rank == late else 0.0) for rank in range(3)]
    assert [worker.join().error for worker in workers] == [""] * 3
    # Who comes last does not wait for others, who have been waiting for it.
    assert workers[late].took_s < 0.8


@pytest.mark.parametrize("missing", [{2}, {0}, {1, 2}, {0, 1}])
def test_missing_worker_is_named_by_all_within_the_deadline(missing):
    ranks = sorted({0, 1, 2} - missing)
    addresses, workers = run_all(3, ranks=ranks, timeout_s=1.0)
    who = ", ".join(f"{rank} ({addresses[rank]})" for rank in sorted(missing))
    # When the chief gives up, so do all, whenever they began.
    first_s = min(worker.start_s for worker in workers)
    for rank, worker in zip(ranks, workers, strict=True):
        # The chief speaks for all, where it is there.
        reporter = 0 if 0 in ranks else rank
        others = [each for each in ranks if each != reporter]
        present = f"; worker {others[0]} did" if others else ""
        assert worker.error == (
            f"Worker{'s' if len(missing) > 1 else ''} {who} did not answer within 1 s{present}.\n"
            f"Received by worker {reporter} ({addresses[reporter]}): connection refused, nothing listens there. "
            "Start it, or read its output."
        )
        assert 1.0 <= worker.start_s + worker.took_s - first_s < 3.0


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({1: {"global_batch": "64"}}, "global_batch: 64 on worker 1 ({1}), 32 on worker 0 ({0})"),
        ({2: {"global_batch": "33"}}, "global_batch: 33 on worker 2 ({2}), 32 on worker 0 ({0})"),
        (
            {1: {"Keras": "3.14.0"}, 2: {"Keras": "3.12.0"}},
            "Keras: 3.14.0 on worker 1 ({1}), 3.15.1 on worker 0 ({0}); "
            "Keras: 3.12.0 on worker 2 ({2}), 3.15.1 on worker 0 ({0})",
        ),
        ({1: {"extra": "1"}}, "extra: 1 on worker 1 ({1}), not given on worker 0 ({0})"),
    ],
)
def test_disagreement_is_named_to_all(facts, said):
    common = {"global_batch": "32", "Keras": "3.15.1"}
    everyone = {rank: {**common, **facts.get(rank, {})} for rank in range(3)}
    addresses, workers = run_all(3, facts=everyone)
    expected = (
        f"All workers must agree before training starts.\nReceived: {said.format(*addresses)}. "
        "Start every worker with the same command, settings and installed versions."
    )
    assert [worker.error for worker in workers] == [expected] * 3
    assert max(worker.took_s for worker in workers) < 5


def test_other_arguments_are_one_line_in_the_log(caplog):
    facts = {rank: {"script arguments": f"1 with hash {rank}", "seed": "1"} for rank in range(3)}
    addresses, workers = run_all(3, facts=facts)
    assert [worker.error for worker in workers] == [""] * 3
    [line] = [record.getMessage() for record in caplog.records if "script arguments" in record.getMessage()]
    rank = int(line.split()[1])
    assert rank in (1, 2)
    assert line == (
        f"worker {rank} ({addresses[rank]}), perhaps among others, has other script arguments "
        f"(1 with hash {rank}, here 1 with hash 0)"
    )


def test_other_arguments_do_not_hide_what_changes_the_result():
    _, workers = run_all(2, facts={rank: {"script arguments": str(rank), "seed": str(rank)} for rank in range(2)})
    for worker in workers:
        assert "Received: seed: 1 on worker 1" in worker.error
        assert "arguments" not in worker.error


def test_other_lists_of_workers():
    *addresses, other = free_addresses(3)
    workers = [Worker(addresses, 0, secret="s" * 16), Worker([*addresses, other], 1, secret="s" * 16)]
    for worker in workers:
        assert f"list of workers: [{', '.join([*addresses, other])}] on worker 1" in worker.join().error


def test_other_lists_of_workers_without_a_secret():
    *addresses, other = free_addresses(3)
    lists = [addresses, [*addresses, other]]
    workers = [Worker(each, rank) for rank, each in enumerate(lists)]
    for rank, worker in enumerate(workers):
        assert "a worker answered that has another list of workers" in worker.join().error
        assert f"This worker has [{', '.join(lists[rank])}]." in worker.error
        assert worker.took_s < 10


def test_two_workers_of_one_rank():
    addresses = free_addresses(2)
    swapped = addresses[::-1]
    # Both were told that they are worker 0, the most common slip in a TF_CONFIG that is copied.
    workers = [Worker(addresses, 0), Worker(swapped, 0)]
    for worker in workers:
        error = worker.join().error
        assert "must be found at the address given for it" in error
        assert "its address leads to a process that says it is worker 0. Give every worker its own rank" in error
        assert worker.took_s < 10


def test_address_that_leads_back():
    [address] = free_addresses(1)
    port = address.rpartition(":")[2]
    [worker] = [Worker([f"127.0.0.1:{port}", f"localhost:{port}"], 0).join()]
    assert "its address leads back to this very process" in worker.error


def test_unknown_host():
    [address] = free_addresses(1)
    worker = Worker([address, "no-such-host.invalid:2222"], 0, timeout_s=1.0).join()
    assert "Worker 1 (no-such-host.invalid:2222) did not answer within 1 s." in worker.error
    assert "its host name is not known here" in worker.error
    assert worker.took_s < 3.0


def test_port_in_use_names_port_and_holder():
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        worker = Worker([f"127.0.0.1:{port}", "127.0.0.1:1"], 0).join()
    assert f"Port {port} of this host must be free for worker 0 (127.0.0.1:{port})." in worker.error
    assert f"listens on 127.0.0.1:{port}" in worker.error
    assert worker.took_s < 3.0


def test_chief_that_leaves_and_comes_again():
    addresses = free_addresses(2)
    gone = Worker(addresses, 0, timeout_s=0.3)
    other = Worker(addresses, 1, delay_s=0.5)
    assert gone.join().error
    assert [Worker(addresses, 0).join().error, other.join().error] == ["", ""]


WAIT = """
import signal, sys
from tfscale import ClusterSpec
from tfscale.cluster.preflight import meet
if sys.argv[2] == "handled":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
print("ready", flush=True)
meet(ClusterSpec(tuple(sys.argv[1].split(",")), 1), {}, timeout_s=60)
"""


@pytest.mark.parametrize(("handler", "status"), [("default", -signal.SIGTERM), ("handled", 5)])
def test_sigterm_ends_a_worker_that_waits(handler, status):
    argv = [sys.executable, "-c", WAIT, ",".join(free_addresses(2)), handler]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2)
        sent_s = time.monotonic()
        process.terminate()
        assert process.wait(20) == status
        assert time.monotonic() - sent_s < 1.0


def test_job_of_one_worker_meets_nobody():
    with socket.create_server(("127.0.0.1", 0)) as held:
        assert Worker([f"127.0.0.1:{held.getsockname()[1]}"], 0).join().error == ""
    assert ClusterSpec(("a:1",), 0).num_workers == 1


@pytest.mark.parametrize(
    ("gpus", "shared"),
    [
        ({0: "GPU-a GPU-b", 1: "GPU-c", 2: "GPU-d"}, None),
        ({0: "", 1: "", 2: ""}, None),
        ({0: "GPU-a", 1: "GPU-b", 2: "GPU-c GPU-b"}, ("GPU-b", 1, 2)),
        ({0: "GPU-a GPU-b", 1: "GPU-a GPU-b", 2: "GPU-c"}, ("GPU-a, GPU-b", 0, 1)),
    ],
)
def test_no_two_workers_have_one_gpu(gpus, shared):
    addresses, workers = run_all(3, facts={rank: {"GPUs": named} for rank, named in gpus.items()})
    if shared is None:
        assert [worker.error for worker in workers] == [""] * 3
        return
    names, *ranks = shared
    for worker in workers:
        assert f"Received: {names}, seen by worker" in worker.error
        assert "CUDA_VISIBLE_DEVICES" in worker.error
        for rank in ranks:
            assert f"worker {rank} ({addresses[rank]})" in worker.error

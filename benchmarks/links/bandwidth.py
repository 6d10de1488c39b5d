"""How many bytes a second does an all-reduce of two local workers take in, beside raw TCP and gloo?

python -m benchmarks.links.bandwidth

Two workers sum tensors of 1, 8 and 64 MB; raw TCP is two processes that send each other as much at once, which is what
a ring of two has to send. gloo needs PyTorch, and is left out without it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.answering import answering
from benchmarks.processes import Worker, cluster_environment, plain_environment
from tfscale.launch.ports import free_addresses

SIZES_BYTES = (2**20, 8 * 2**20, 64 * 2**20)
_TIMEOUT_S = 120.0
_BLOCK_S = 0.4


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.links.bandwidth", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each")
    options = parser.parse_args()
    kinds = ["tfscale", "tfscale, bf16", "raw TCP"]
    if importlib.util.find_spec("torch"):
        kinds.append("gloo")
    else:
        print("PyTorch is not installed: no gloo. `make bench-torch` installs it.", file=sys.stderr)
    found: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        pairs: dict[str, list[Worker]] = {}
        try:
            for kind in kinds:
                pairs[kind] = _start(kind, Path(directory))
            for index in range(options.rounds + 1):
                for kind in kinds if index % 2 == 0 else reversed(kinds):
                    for size in SIZES_BYTES:
                        seconds = _ask(pairs[kind], size)
                        # The first round warms up.
                        if index:
                            found.setdefault((kind, size), []).append(size / seconds)
        finally:
            for worker in (worker for pair in pairs.values() for worker in pair):
                worker.kill()
    print("MB/s of float32 summed, median [least .. greatest]; raw TCP: sent each way at once.\n")
    print(f"{'':16}" + "".join(f"{f'{size >> 20} MB':24}" for size in SIZES_BYTES))
    for kind in kinds:
        cells = (_cell(found[kind, size]) for size in SIZES_BYTES)
        print(f"{kind:16}" + "".join(f"{cell:24}" for cell in cells))
    return 0


def _cell(values: list[float]) -> str:
    median, least, greatest = (value / 1e6 for value in (statistics.median(values), min(values), max(values)))
    return f"{median:.0f} [{least:.0f} .. {greatest:.0f}]"


def _start(kind: str, directory: Path) -> list[Worker]:
    addresses = free_addresses(2)
    cores = sorted(os.sched_getaffinity(0))
    workers = []
    for rank in range(2):
        environment = plain_environment() | cluster_environment(addresses, rank)
        log = directory / f"{kind}-{rank}.log"
        workers.append(Worker(Path(sys.executable), "benchmarks.links.bandwidth", environment, log))
        workers[-1].tell({"kind": kind, "rank": rank, "core": cores[rank % len(cores)], "addresses": addresses})
    return workers


def _ask(workers: list[Worker], size: int) -> float:
    """Seconds of one all-reduce."""
    for worker in workers:
        worker.tell({"bytes": size})
    deadline_s = time.monotonic() + _TIMEOUT_S
    return max(worker.answer(deadline_s)["seconds"] for worker in workers)


def serve() -> None:
    """What a worker does."""
    answer = answering()
    start = json.loads(sys.stdin.readline())
    os.sched_setaffinity(0, {start["core"]})
    makers = {"raw TCP": _tcp, "gloo": _gloo}
    make = makers.get(start["kind"], _tfscale)
    exchange = make(start["rank"], start["addresses"], start["kind"])
    for line in sys.stdin:
        size = json.loads(line)["bytes"]
        # Both sides must do it equally often: the number follows from the size alone.
        count = max(2, round(_BLOCK_S * 5e8 / size))
        answer(seconds=exchange(size, count) / count)


Exchange = Callable[[int, int], float]


def _tfscale(rank: int, addresses: list[str], kind: str) -> Exchange:
    del rank, addresses
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    import tfscale
    from tfscale.replicas.all_reduce import sum_as_they_are

    strategy = tfscale.make_strategy()
    dtype = tf.bfloat16 if kind.endswith("bf16") else tf.float32

    @tf.function(autograph=False)
    def several(values: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        def once(index: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            # A new tensor each time, as a pack of gradients is.
            (reduced,) = strategy.run(lambda: sum_as_they_are([tf.cast(values + total, dtype)]))
            return index + 1, 0.0 * tf.cast(reduced[0], tf.float32)

        return tf.while_loop(lambda index, _: index < count, once, (0, 0.0), parallel_iterations=1)[1]

    def exchange(size: int, count: int) -> float:
        values = tf.ones(size // 4)
        several(values, tf.constant(1))
        start_s = time.perf_counter()
        several(values, tf.constant(count)).numpy()
        return time.perf_counter() - start_s

    return exchange


def _gloo(rank: int, addresses: list[str], kind: str) -> Exchange:
    del rank, addresses, kind
    import torch

    from benchmarks.torch_loop import join

    torch.set_num_threads(1)
    join()

    def exchange(size: int, count: int) -> float:
        values = torch.ones(size // 4)
        torch.distributed.all_reduce(values)
        start_s = time.perf_counter()
        for _ in range(count):
            torch.distributed.all_reduce(values)
        return time.perf_counter() - start_s

    return exchange


def _tcp(rank: int, addresses: list[str], kind: str) -> Exchange:
    del kind
    host, port = addresses[0].split(":")
    if rank == 0:
        with socket.create_server((host, int(port))) as server:
            server.settimeout(_TIMEOUT_S)
            connection, _ = server.accept()
    else:
        connection = _connected(host, int(port))

    def exchange(size: int, count: int) -> float:
        out, into = bytearray(size), memoryview(bytearray(size))

        def receive() -> None:
            for _ in range(count):
                received = 0
                while received < size:
                    received += connection.recv_into(into[received:])

        connection.sendall(b"?")
        connection.recv(1)
        start_s = time.perf_counter()
        receiver = threading.Thread(target=receive)
        receiver.start()
        for _ in range(count):
            connection.sendall(out)
        receiver.join()
        return time.perf_counter() - start_s

    return exchange


def _connected(host: str, port: int) -> socket.socket:
    deadline_s = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            return socket.create_connection((host, port), timeout=_TIMEOUT_S)
        except ConnectionRefusedError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)


if __name__ == "__main__":
    # The same file is the parent, when it is started by hand, and the worker, when it is started by the parent.
    sys.exit(main() if "TF_CONFIG" not in os.environ else serve())

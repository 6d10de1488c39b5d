"""What does the meeting of N workers cost, from 2 to 1,000, in a few processes of this machine?

Each worker is the library's own `Meeting`, with a port of its own on the loopback; a process runs some of them in turn,
in one thread. So no processor time goes to interpreters that start, or that wait for each other's lock.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import multiprocessing
import selectors
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from tfscale import ClusterSpec
from tfscale.cluster.preflight.connection import Connection
from tfscale.cluster.preflight.meeting import Meeting
from tfscale.cluster.preflight.strangers import Strangers
from tfscale.cluster.secret import SECRET, Secret, read_secret
from tfscale.errors import ClusterError

_NUMBERS = (2, 8, 32, 128, 512, 1000)
_PROCESSES = 8
_TIMEOUT_S = 120.0
_KEY = "of a job that is made up"
_FACTS = {"tfscale": "0", "TensorFlow": "2.21.0", "Keras": "3.15.0", "Python": "3.11", "global_batch": "4096"}
_HEADINGS = ("workers", "seconds", "processor ms per worker", "open files of a worker", "connections", "messages")


@contextlib.contextmanager
def counting() -> Iterator[Counter[str]]:
    """Counts the connections that workers take in, and the signed messages that they send, in this process."""
    counts: Counter[str] = Counter()
    methods = [(Strangers, "add", "connections"), (Connection, "_write", "messages")]
    originals = [getattr(owner, name) for owner, name, _ in methods]

    def counted(original: Any, what: str) -> Any:
        def method(*given: Any, **named: Any) -> Any:
            counts[what] += 1
            return original(*given, **named)

        return method

    for (owner, name, what), original in zip(methods, originals, strict=True):
        setattr(owner, name, counted(original, what))
    try:
        yield counts
    finally:
        for (owner, name, _), original in zip(methods, originals, strict=True):
            setattr(owner, name, original)


def meet_in_turn(specs: Sequence[ClusterSpec], secret: Secret, timeout_s: float) -> tuple[dict[int, str], int]:
    """Runs some workers until each may start, or has ended; returns errors by rank, and the most files of a worker."""
    errors: dict[int, str] = {}
    most_open = 0
    with selectors.DefaultSelector() as selector:
        meetings = {spec.rank: Meeting(spec, _FACTS, timeout_s, secret, time.monotonic) for spec in specs}
        for rank, meeting in meetings.items():
            selector.register(meeting.selector, selectors.EVENT_READ, rank)
        due_s = dict.fromkeys(meetings, 0.0)
        while meetings:
            wait_s = max(min(due_s[rank] for rank in meetings) - time.monotonic(), 0.0)
            heard = {key.data for key, _ in selector.select(wait_s)}
            now_s = time.monotonic()
            for rank, meeting in list(meetings.items()):
                if rank not in heard and due_s[rank] > now_s:
                    continue
                try:
                    meeting.look(0.0)
                except ClusterError as error:
                    errors[rank] = str(error)
                # One more is the selector itself.
                most_open = max(most_open, 1 + len(meeting.selector.get_map()))
                due_s[rank] = now_s + meeting.pause_s()
                if meeting.is_over or rank in errors:
                    selector.unregister(meeting.selector)
                    meetings.pop(rank).close()
    return errors, most_open


def _choose_addresses(number: int) -> tuple[str, ...]:
    """Returns addresses whose ports the system gives to nobody who connects: it has thousands of those in use here."""
    addresses = []
    for port in range(10_000, 32_000):
        if len(addresses) == number:
            break
        with contextlib.suppress(OSError):
            socket.create_server(("", port)).close()
            addresses.append(f"127.0.0.1:{port}")
    return tuple(addresses)


def _run_some(addresses: tuple[str, ...], ranks: Sequence[int], begin: Any, results: Any) -> None:
    secret = read_secret({SECRET: _KEY}, addresses)
    specs = [ClusterSpec(addresses, rank) for rank in ranks]
    gc.freeze()
    # Where 1,000 workers share two cores, many wait for more than the 10 s after which they say so.
    logging.disable(logging.WARNING)
    with counting() as counts:
        begin.wait()
        start_s, start_processor_s = time.monotonic(), time.process_time()
        errors, most_open = meet_in_turn(specs, secret, _TIMEOUT_S)
        processor_s = time.process_time() - start_processor_s
    results.put((time.monotonic() - start_s, processor_s, most_open, dict(counts), errors))


def measure(num_workers: int, num_processes: int) -> tuple[str, ...]:
    """Returns the row of a job."""
    context = multiprocessing.get_context("spawn")
    num_processes = min(num_processes, num_workers)
    addresses = _choose_addresses(num_workers)
    begin, results = context.Barrier(num_processes), context.Queue()
    started = [
        context.Process(target=_run_some, args=(addresses, range(each, num_workers, num_processes), begin, results))
        for each in range(num_processes)
    ]
    for process in started:
        process.start()
    took = [results.get(timeout=2 * _TIMEOUT_S) for _ in started]
    for process in started:
        process.join()
    seconds, processor_s, most_open, counts, errors = zip(*took, strict=True)
    if any(errors):
        raise SystemExit(f"{num_workers} workers did not meet: {next(each for each in errors if each)}")
    total = sum((Counter(each) for each in counts), Counter())
    numbers = [f"{max(seconds):.2f}", f"{1000 * sum(processor_s) / num_workers:.2f}", str(max(most_open))]
    return (str(num_workers), *numbers, str(total["connections"]), str(total["messages"]))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=_NUMBERS)
    parser.add_argument("--processes", type=int, default=_PROCESSES)
    chosen = parser.parse_args()
    print("| " + " | ".join(_HEADINGS) + " |\n|" + "---|" * len(_HEADINGS), flush=True)
    for num_workers in chosen.workers:
        print("| " + " | ".join(measure(num_workers, chosen.processes)) + " |", flush=True)


if __name__ == "__main__":
    main()

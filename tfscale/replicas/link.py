"""How fast is the link between the replicas, and how is it used best? Measured once, when a strategy is made.

An all-reduce of n bytes takes about `latency + n / rate`. A pack should be so large that the latency is a small part of
its time, and no larger, so that the first ones travel while the backward pass still works. Only what the processor
waits for can be hidden so, which between two processes of one machine is next to nothing. All workers go by the
slowest, and so decide alike.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfscale.cluster.cores import find_cores
from tfscale.replicas.agreement import gather_from_workers
from tfscale.replicas.all_reduce import set_communication_options, sum_as_they_are
from tfscale.replicas.owners import Fact, ReplicaGroup
from tfscale.replicas.packs import Packing

# Nothing new is begun that would go beyond.
_BUDGET_S = 1.0
# What is timed together, so that a clock's tick does not count.
_SAMPLE_S, _MOST_CALLS, _SAMPLES = 0.02, 16, 3
# Samples go on for so long, because connections and threads are slow at first, and others use the machine in bursts.
_SAMPLING_S = 0.1
# The second only where the first takes little: a slow link would take a second, a fast one needs more to show.
_PROBES_BYTES = (2**18, 2**21)
_SHORT_S = 0.02
# A clock of the processor's time has its ticks too.
_LEAST_IDLE = 0.05
# A pack takes this many times the latency.
_TIMES_LATENCY = 8
_LEAST_BYTES, _MOST_BYTES = 2**18, {"CPU": 2**23, "GPU": 2**25}


class Link(NamedTuple):
    """What joins the replicas, as collectives see it."""

    latency_s: float
    """Seconds that the all-reduce of one number takes."""
    bytes_per_s: float
    """Bytes of a large tensor that are summed in a second."""
    idle: float = 1.0
    """Part of that time in which the processor of a worker has nothing to do with it."""

    def describe(self, num_replicas: int) -> str:
        """Latency, and bandwidth as a ring uses it: it sends 2 (N - 1) / N of the bytes over each replica's link.

        Example:
            >>> from tfscale.replicas.link import Link
            >>> Link(latency_s=0.0005, bytes_per_s=1e8).describe(num_replicas=4)
            'latency 0.50 ms, 150 MB/s'
        """
        return f"latency {1e3 * self.latency_s:.2f} ms, {self.ring_bytes_per_s(num_replicas) / 1e6:.3g} MB/s"

    def ring_bytes_per_s(self, num_replicas: int) -> float:
        """Bytes that a ring sends over each replica's link in a second, in one direction."""
        return 2 * (num_replicas - 1) / num_replicas * self.bytes_per_s

    def all_reduce_s(self, num_bytes: float) -> float:
        """Seconds of one, if nothing is computed meanwhile.

        Example:
            >>> from tfscale.replicas.link import Link
            >>> Link(latency_s=0.0005, bytes_per_s=1e8).all_reduce_s(1e6)
            0.0105
        """
        return self.latency_s + num_bytes / self.bytes_per_s


def least_pack_bytes(link: Link, device_type: str) -> int:
    """The power of two for which the latency is about a ninth of a pack's time; a noisy clock seldom changes it.

    Only the time that the processor is idle counts: it is all that computing can make use of.

    Example:
        >>> from tfscale.replicas.link import Link, least_pack_bytes
        >>> [least_pack_bytes(Link(0.0005, rate), "CPU") // 2**10 for rate in (1e7, 1e8, 4e8, 1e10)]
        [256, 512, 2048, 8192]
        >>> least_pack_bytes(Link(0.0005, 1e8, idle=0.1), "CPU") // 2**10
        4096
    """
    # What the host is busy with does not keep a GPU from computing.
    idle = max(link.idle, _LEAST_IDLE) if device_type == "CPU" else 1.0
    wanted = max(_TIMES_LATENCY * link.latency_s * link.bytes_per_s / idle, 1.0)
    return int(min(max(2 ** round(math.log2(wanted)), _LEAST_BYTES), _MOST_BYTES[device_type]))


class MeasuredLink(NamedTuple):
    """What was found, and what is made of it."""

    link: Link
    implementation: str
    packing: Packing


def measure_link(
    strategy: tf.distribute.Strategy,
    implementations: Mapping[str, Any],
    packing: Packing,
    *,
    device_type: str,
    budget_s: float = _BUDGET_S,
) -> MeasuredLink:
    """Measures the link, and from then on sends by what was found; to be called by every worker.

    Args:
        strategy: Of several replicas.
        implementations: `CommunicationOptions` by name, the first of which is used where time does not suffice.
        packing: As the user wants it; what is None there is chosen.
        device_type: `"CPU"` or `"GPU"`.
        budget_s: Seconds after which nothing more is tried.
    """
    watch = _Stopwatch(strategy, budget_s)
    links: dict[str, Link] = {}
    for name, options in implementations.items():
        if not links or watch.has_time():
            links[name] = _measure_one(strategy, options, watch)
    implementation = max(links, key=lambda name: links[name].bytes_per_s)
    link, options = links[implementation], implementations[implementation]
    if packing.bytes_per_pack is None:
        packing = packing._replace(least_bytes=least_pack_bytes(link, device_type))
    set_communication_options(strategy, options, packing)
    found = MeasuredLink(link, implementation, packing)
    return LINK.set(strategy, found)


LINK = Fact[MeasuredLink](ReplicaGroup, "link", lambda found: f"{found.link} ({found.implementation})")


def describe_link(strategy: tf.distribute.Strategy) -> str | None:
    """What was measured for `strategy`, as one line; None where nothing was."""
    found = LINK.of(strategy)
    return None if found is None else describe(found, strategy.num_replicas_in_sync)


def link_facts(strategy: tf.distribute.Strategy) -> dict[str, float] | None:
    """What was measured for `strategy`, as numbers of one link; None where nothing was.

    Returns:
        `bytes_per_s` in one direction and `latency_s` of an all-reduce of two replicas, both as a ring uses the link,
        and `processor_s_per_byte`, for which a processor is busy with sending.
    """
    found, replicas = LINK.of(strategy), int(strategy.num_replicas_in_sync)
    if found is None or replicas < 2:
        return None
    link = found.link
    return {
        "bytes_per_s": link.ring_bytes_per_s(replicas),
        "latency_s": link.latency_s / (replicas - 1),
        "processor_s_per_byte": (1 - link.idle) / link.bytes_per_s,
    }


def describe(found: MeasuredLink, num_replicas: int) -> str:
    """One line for the log and for `print(dp)`.

    Example:
        >>> from tfscale.replicas.link import Link, MeasuredLink, describe
        >>> describe(MeasuredLink(Link(0.0005, 1e8), "ring", Packing(None, 2**19)), num_replicas=2)
        'Link: latency 0.50 ms, 100 MB/s (ring). Gradients travel in packs of at least 0.524 MB.'
    """
    packing = found.packing
    size = "at least" if packing.bytes_per_pack is None else "about"
    return (
        f"Link: {found.link.describe(num_replicas)} ({found.implementation}). "
        f"Gradients travel in packs of {size} {packing.usual_bytes / 1e6:.3g} MB."
    )


def _measure_one(strategy: tf.distribute.Strategy, options: Any, watch: _Stopwatch) -> Link:
    set_communication_options(strategy, options, Packing(bytes_per_pack=0))
    one_number = _exchange(strategy, 1, 4)
    watch.time(one_number)
    small, large = _PROBES_BYTES
    size, (taken_s, idle) = small, watch.time(_exchange(strategy, 1, small))
    if taken_s < _SHORT_S:
        size, (taken_s, idle) = large, watch.time(_exchange(strategy, 1, large))
    # Once more: connections and threads that are new take several times as long.
    latency_s = watch.time(one_number).seconds
    # A clock with large ticks may show no more for the large tensor than for one number: at least half is its own.
    return Link(latency_s, size / max(taken_s - latency_s, taken_s / 2), idle)


def _exchange(strategy: tf.distribute.Strategy, num_packs: int, num_bytes: int) -> Callable[[tf.Tensor], Any]:
    """A function that sums so many tensors of so many bytes as often as it is told."""

    def replica(total: tf.Tensor) -> tf.Tensor:
        # New numbers each time, as gradients are.
        tensors = [tf.fill([num_bytes // 4], total + index) for index in range(num_packs)]
        return tf.add_n([each[0] for each in sum_as_they_are(tensors)])

    def body(index: tf.Tensor, total: tf.Tensor) -> Sequence[tf.Tensor]:
        totals = strategy.run(replica, args=(total,))
        return index + 1, 0.0 * strategy.experimental_local_results(totals)[0]

    @tf.function(autograph=False)
    def several(count: tf.Tensor) -> Any:
        return tf.while_loop(lambda index, _: index < count, body, (0, 0.0), parallel_iterations=1)[1]

    return several


class _Sample(NamedTuple):
    """What one call took."""

    seconds: float
    """On the slowest worker."""
    idle: float
    """Part of that time that the busiest worker's processor left free."""


class _Stopwatch:
    """Times what all workers do together. Their clocks differ: all go by the slowest."""

    def __init__(self, strategy: tf.distribute.Strategy, budget_s: float):
        self._start_s = time.perf_counter()
        self._budget_s = budget_s
        self._spent_s = 0.0
        self._strategy = strategy
        # The first is traced before anything is timed.
        gather_from_workers(strategy, tf.zeros([3], tf.float64))

    def has_time(self, seconds: float = 0.0) -> bool:
        """Whether so much is left; the same on all workers."""
        return self._spent_s + seconds < self._budget_s

    def time(self, several: Callable[[tf.Tensor], Any]) -> _Sample:
        """The fastest of some samples of what `several` repeats."""
        # Traces, and does nothing.
        several(tf.constant(0))
        samples = [self._sample(several, 1)]
        sampling_s = samples[0].seconds
        while (len(samples) < _SAMPLES or sampling_s < _SAMPLING_S) and self.has_time(min(samples).seconds):
            count = min(max(int(_SAMPLE_S / max(min(samples).seconds, 1e-6)), 1), _MOST_CALLS)
            samples.append(self._sample(several, count))
            sampling_s += count * samples[-1].seconds
        return min(samples)

    def _sample(self, several: Callable[[tf.Tensor], Any], count: int) -> _Sample:
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        several(tf.constant(count)).numpy()
        now_s, cpu_s = time.perf_counter(), time.process_time() - start_cpu_s
        busy = min(cpu_s / (now_s - start_s) / len(find_cores()), 1.0)
        own = tf.constant([(now_s - start_s) / count, now_s - self._start_s, busy], tf.float64)
        taken_s, self._spent_s, busy = map(max, zip(*gather_from_workers(self._strategy, own), strict=True))
        return _Sample(taken_s, 1.0 - busy)

"""What befalls which job, and when? A seed gives it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

EXAMPLES, BATCH, EPOCHS = 44, 8, 3
STEPS = 6  # Of an epoch; the last one has 4 examples.

# What is promised of data after a restart: the very step; that, or the epoch again and a line that names it; an epoch.
SAME, AGAIN, WHOLE = "same", "again", "whole"
DATA = {
    "dp.dataset of arrays": SAME,
    "dp.dataset of a stream": AGAIN,
    "tf.data in order": SAME,
    "tf.data, seeded": SAME,
    "tf.data, seeded, endless": SAME,
    "tf.data, new seed each start": AGAIN,
    "tf.data, drawn once": AGAIN,
    "tf.data, generator that draws": AGAIN,
    "tf.data, unseeded": WHOLE,
    "arrays in order": SAME,
    "arrays, shuffled": WHOLE,
    "PyDataset": WHOLE,
    "generator": WHOLE,
}

# A worker would draw an order of its own, as the library warns.
ONE_WORKER = {"tf.data, drawn once", "tf.data, unseeded"}

# Faults after which a job has to be started again; those that it lives through; and those of its files meanwhile.
ENDING = ("one killed", "all killed", "one stopped", "SIGTERM", "sys.exit", "connections closed", "network down")
PASSING = ("paused", "network away for 2 s", "disk full", "stranger", "second run")
DAMAGES = ("data cut short", "bytes changed", "index gone", "note garbled", "all damaged")
FAULTS = ENDING + PASSING + DAMAGES
# These need somebody to be talked with.
OF_SEVERAL = {"connections closed", "network down", "network away for 2 s", "stranger"}
# These can come before training has begun, too.
_AT_START = {"one killed", "all killed", "one stopped", "SIGTERM"}
_START_S, _JITTER_S = 5.0, 0.1


@dataclass(frozen=True)
class Fault:
    """Something that befalls a job.

    Args:
        kind: One of `FAULTS`.
        rank: Of the worker whom it befalls, or who says that it is time.
        step: Of the run, from 0, when it is time; None for the start of the processes.
        delay_s: Seconds after that.
        seed: For what else is drawn.
    """

    kind: str
    rank: int = 0
    step: int | None = None
    delay_s: float = 0.0
    seed: int = 0

    def __str__(self) -> str:
        when = "start" if self.step is None else f"step {self.step}"
        return self.kind if self.kind in DAMAGES else f"{self.kind} (worker {self.rank}, {when} + {self.delay_s:.2f} s)"


@dataclass(frozen=True)
class Attempt:
    """One start of a job.

    Args:
        workers: How many.
        damages: What befalls its files before it.
        faults: What befalls it: any number that pass, and one at most that ends it.
    """

    workers: int
    damages: tuple[Fault, ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def ending(self) -> Fault | None:
        """The fault after which the job has to be started again, if there is one."""
        return next((fault for fault in self.faults if fault.kind in ENDING), None)

    def __str__(self) -> str:
        befalls = [str(fault) for fault in (*self.damages, *self.faults)]
        return f"{self.workers} workers: {', '.join(befalls) or 'nothing'}"


@dataclass(frozen=True)
class Schedule:
    """A job, and what befalls it.

    Args:
        seed: Of which it was made.
        data: One of `DATA`.
        attempts: By their order; nothing ends the last one.
    """

    seed: int
    data: str
    attempts: tuple[Attempt, ...]

    @property
    def faults(self) -> list[Fault]:
        """All that befalls it, by their order."""
        return [fault for attempt in self.attempts for fault in (*attempt.damages, *attempt.faults)]

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.data}. " + "; ".join(map(str, self.attempts))


def draw(seed: int) -> Schedule:
    """Returns the schedule of a seed: one to three, and an end of the attempt before where files are damaged."""
    rng = Random(seed)
    data = rng.choice(list(DATA))
    most = 1 if data in ONE_WORKER else 3
    kinds = rng.sample([kind for kind in FAULTS if most > 1 or kind not in OF_SEVERAL], rng.randint(1, 3))
    workers, step, attempts = min(rng.choice([1, 2, 2, 3]), most), 0, []
    damages: tuple[Fault, ...] = ()
    for passing, ending, damaged in _by_attempt(kinds):
        befalls = [*passing, *([ending] if ending else [])]
        if OF_SEVERAL.intersection(befalls):
            workers = max(workers, 2)
        # The next one comes behind this one, but for what was not saved.
        before, step = step, rng.randint(step, max(step, STEPS * EPOCHS - 2 - 3 * len(kinds)) + 1)
        steps = [rng.randint(before, step) if kind in passing else step for kind in befalls]
        faults = tuple(_drawn(rng, kind, workers, at) for kind, at in zip(befalls, steps, strict=True))
        attempts.append(Attempt(workers, damages, faults))
        damages = tuple(Fault(kind, seed=rng.getrandbits(32)) for kind in damaged)
        if rng.random() < 0.4:
            workers = rng.randint(1, most)
    if damages or attempts[-1].ending:
        attempts.append(Attempt(workers, damages))
    return Schedule(seed, data, tuple(attempts))


def _by_attempt(kinds: list[str]) -> Iterator[tuple[list[str], str | None, list[str]]]:
    """What passes in an attempt, what ends it, and what befalls its files then."""
    passing: list[str] = []
    ending: str | None = None
    damages: list[str] = []
    for kind in kinds:
        if ending is not None and kind not in DAMAGES:
            yield passing, ending, damages
            passing, ending, damages = [], None, []
        if kind in PASSING:
            passing.append(kind)
        elif kind in ENDING:
            ending = kind
        else:
            # Nobody damages what is in use.
            ending = ending or "all killed"
            damages.append(kind)
    yield passing, ending, damages


def _drawn(rng: Random, kind: str, workers: int, step: int) -> Fault:
    # The chief alone writes, and stands in the way of a second run.
    rank = 0 if kind in ("disk full", "second run") else rng.randrange(workers)
    at_start = kind == "stranger" or (kind in _AT_START and rng.random() < 0.25)
    delay_s = 0.0 if kind == "stranger" else rng.uniform(0, _START_S if at_start else _JITTER_S)
    return Fault(kind, rank, None if at_start else step, round(delay_s, 3), rng.getrandbits(32))

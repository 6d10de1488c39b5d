"""Who runs against whom, and what must be shown.

Standard library only: the process that starts the contenders must leave the cores to them.
"""

from __future__ import annotations

import dataclasses

MODELS = ("mlp", "convnet")
GROUPS = ("a", "b", "c", "d")
PER_REPLICA_BATCH = 64

# Of group (d): a model whose step is next to nothing, so that what is measured is what surrounds it.
SMALL_MODEL, SMALL_BATCH = "small", 32

# Where a call takes several steps. Both sides of a comparison always take the same number.
STEPS_PER_CALL = 8

# Nothing is said of it: tfscale takes several steps per call once that pays, the others one.
AS_IT_COMES = ", as it comes"

# A contender uses no more than this times the memory of plain Keras with as many replicas.
MEMORY_LIMIT = 1.05

LEARNING_RATE, MOMENTUM = 0.01, 0.9
OPTIMIZER = f"SGD({LEARNING_RATE}, momentum={MOMENTUM})"


@dataclasses.dataclass(frozen=True)
class Contender:
    """One way to train a model: which code, on how much of the machine.

    Args:
        label: As it is printed.
        library: `"tfscale"`, `"keras"`, `"tf_keras"`, `"jax"` (Keras on JAX), `"torch"`
            (DistributedDataParallel on gloo), or a loop written by hand: `"raw"` with TensorFlow's distributed input,
            `"raw_own_input"` with an iterator per worker.
        num_replicas: Logical CPU devices of each process.
        num_workers: Processes.
        one_core_each: Whether worker i runs on core i alone, with one thread.
        steps_per_call: Optimizer updates per call of the compiled function.
        distributed: Whether plain Keras runs under a strategy.
        chosen_steps: What tfscale is told of the steps per call: "auto" as it comes, "always" to choose from the first
            call on, None for `steps_per_call`.
        batch: Examples of one step of all replicas; None for `PER_REPLICA_BATCH` on each.
    """

    label: str
    library: str
    num_replicas: int = 1
    num_workers: int = 1
    one_core_each: bool = False
    steps_per_call: int = 1
    distributed: bool = False
    chosen_steps: str | None = None
    batch: int | None = None

    @property
    def global_batch(self) -> int:
        """Examples of one step of all replicas."""
        return self.batch or PER_REPLICA_BATCH * self.num_replicas * self.num_workers


@dataclasses.dataclass(frozen=True)
class Bar:
    """The first contender's examples/s over another's.

    Args:
        against: Label of the other.
        at_least: What the median ratio must reach; None for a ratio that is only reported.
        memory: Whether the ratio of their peak memory must stay within `MEMORY_LIMIT`.
    """

    against: str
    at_least: float | None = None
    memory: bool = False


@dataclasses.dataclass(frozen=True)
class Heat:
    """Contenders that take turns on one model, and the bars between them."""

    group: str
    title: str
    contenders: tuple[Contender, ...]
    bars: tuple[Bar, ...]


def one_replica() -> Heat:
    """(a): what does tfscale cost a script that has one device?"""
    ours, keras = Contender("tfscale fit", "tfscale"), Contender("Keras fit", "keras")
    return Heat("a", "1 replica", (ours, keras), (Bar(keras.label, at_least=0.98, memory=True),))


def logical_replicas(num_replicas: int, *, beside: str = "keras", as_it_comes: bool = False) -> Heat:
    """(b): N logical CPUs of one process, beside Keras under `MirroredStrategy`, or Keras on JAX, on as many.

    A heat for each: now and then JAX waits for ever in a collective of its own, and ends the process after 40 s.
    """
    ours = Contender("tfscale fit", "tfscale", num_replicas, chosen_steps="auto" if as_it_comes else None)
    label = {"keras": "Keras fit, MirroredStrategy", "jax": "Keras fit on JAX"}[beside]
    other = Contender(label, beside, num_replicas, distributed=True)
    title = f"{num_replicas} logical replicas" + (AS_IT_COMES if as_it_comes else "")
    return Heat("b", title, (ours, other), (Bar(label, at_least=1.0, memory=beside == "keras"),))


def two_workers(steps_per_call: int, *, tf_keras: bool, torch: bool, as_it_comes: bool = False) -> Heat:
    """(c): two processes on a core each, beside one, a hand-written loop, tf_keras, and PyTorch."""
    chosen_steps = "auto" if as_it_comes else None

    def contender(label: str, library: str, num_workers: int = 2) -> Contender:
        return Contender(
            label,
            library,
            num_workers=num_workers,
            one_core_each=True,
            steps_per_call=steps_per_call,
            distributed=True,
            chosen_steps=chosen_steps if library == "tfscale" else None,
        )

    contenders = [
        contender("tfscale fit", "tfscale"),
        contender("tfscale fit, 1 worker", "tfscale", num_workers=1),
        contender("raw loop, distributed input", "raw"),
        contender("raw loop, own iterators", "raw_own_input"),
    ]
    bars = [Bar(contenders[1].label)]
    bars += [Bar(each.label, at_least=1.0) for each in contenders[2:]]
    if tf_keras:
        contenders.append(contender("tf_keras fit", "tf_keras"))
        bars.append(Bar(contenders[-1].label))
    if torch:
        contenders.append(contender("PyTorch DDP, gloo", "torch"))
        bars.append(Bar(contenders[-1].label, at_least=1.0))
    title = "2 workers, a core each"
    title += f", {steps_per_call} steps per call" if steps_per_call > 1 else ""
    title += AS_IT_COMES if as_it_comes else ""
    return Heat("c", title, tuple(contenders), tuple(bars))


def small_model(num_replicas: int, at_least: float) -> Heat:
    """(d): the overhead of `fit` itself, beside Keras as it comes: one step per call."""
    distributed = num_replicas > 1
    label = "Keras fit, MirroredStrategy" if distributed else "Keras fit"
    ours = Contender('tfscale fit, "auto"', "tfscale", num_replicas, chosen_steps="always", batch=SMALL_BATCH)
    one = Contender("tfscale fit, 1 step per call", "tfscale", num_replicas, batch=SMALL_BATCH)
    keras = Contender(label, "keras", num_replicas, distributed=distributed, batch=SMALL_BATCH)
    title = f"MLP 20-32-1, batch {SMALL_BATCH}, {num_replicas} replica(s)"
    return Heat("d", title, (ours, one, keras), (Bar(keras.label, at_least=at_least), Bar(one.label)))


def models_of(group: str) -> tuple[str, ...]:
    """What is trained in a group."""
    return (SMALL_MODEL,) if group == "d" else MODELS


def heats(group: str, *, tf_keras: bool = True, torch: bool = True, jax: bool = True) -> list[Heat]:
    """The heats of one group, for either model."""
    if group == "a":
        return [one_replica()]
    if group == "b":
        others = ("keras", "jax") if jax else ("keras",)
        one_step = [logical_replicas(count, beside=other) for other in others for count in (2, 4)]
        return one_step + [logical_replicas(2, beside=other, as_it_comes=True) for other in others]
    if group == "d":
        return [small_model(1, at_least=4.0), small_model(2, at_least=3.0)]
    fixed = [two_workers(count, tf_keras=tf_keras, torch=torch) for count in (1, STEPS_PER_CALL)]
    return [*fixed, two_workers(1, tf_keras=tf_keras, torch=torch, as_it_comes=True)]


def quick_heat() -> Heat:
    """The smallest pair with a strategy on both sides, for a smoke test."""
    return logical_replicas(2)

"""How are the examples of a step divided, and how many steps is that?"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tfscale.errors import BatchError
from tfscale.scaling.ratio import exact_fraction, is_number, plain, show

MAX_COUNT = 10**15
"""The largest number of examples, replicas or steps: mistyped ones are refused before anything is counted with them."""


@dataclass(frozen=True, init=False)
class BatchPlan:
    """The examples of one step, over replicas and micro-steps, beside those of the run that the recipe was tuned for.

    `global_batch = sum over replicas of their shares`, with shares that differ by one example at most, and
    `accumulation = ceil(largest share / micro_batch)`. Any two of the first five give the others; a number of replicas
    or of micro-steps that follows from nothing is 1. What is given must agree. A global batch need not be a multiple
    of anything.

    Args:
        per_replica_batch: Examples of one replica in one step. In an uneven plan the mean over replicas, as a fraction.
        micro_batch: Most examples of one forward and backward pass on one replica.
        accumulation: Micro-steps in one step.
        num_replicas: Copies of the model.
        global_batch: Examples of all replicas in one step.
        reference_batch: Examples in one step of the run that the recipe was tuned for: by default `global_batch` if it
            is given and `per_replica_batch` is not, else `per_replica_batch` (a recipe for one replica).

    Raises:
        BatchError: When a number is not a positive integer, fewer than two are given, they contradict each other, or
            there are fewer examples than replicas.

    Example:
        >>> from tfscale import BatchPlan
        >>> plan = BatchPlan(per_replica_batch=64, num_replicas=8, micro_batch=16)
        >>> plan.global_batch, plan.accumulation, plan.batch_ratio, plan.steps_per_epoch(50_000)
        (512, 4, Fraction(8, 1), 98)
        >>> BatchPlan(global_batch=100, num_replicas=8).shares
        (12, 13, 12, 13, 12, 13, 12, 13)
    """

    per_replica_batch: int | Fraction
    micro_batch: int
    accumulation: int
    num_replicas: int
    global_batch: int
    reference_batch: int

    def __init__(
        self,
        *,
        per_replica_batch: int | Fraction | None = None,
        micro_batch: int | None = None,
        accumulation: int | None = None,
        num_replicas: int | None = None,
        global_batch: int | None = None,
        reference_batch: int | None = None,
    ) -> None:
        given: dict[str, Any] = {
            "per_replica_batch": per_replica_batch,
            "micro_batch": micro_batch,
            "accumulation": accumulation,
            "num_replicas": num_replicas,
            "global_batch": global_batch,
        }
        known = {name: check_count(name, value) for name, value in given.items() if value is not None}
        if reference_batch is not None:
            check_count("reference_batch", reference_batch)
        facts = _derive(known)
        default = (
            facts["global_batch"] if known.keys() & {"global_batch", "per_replica_batch"} == {"global_batch"} else None
        )
        facts["reference_batch"] = reference_batch or default or math.ceil(facts["per_replica_batch"])
        for name, value in facts.items():
            # The dataclass is frozen; this is its constructor.
            object.__setattr__(self, name, value)

    @property
    def batch_ratio(self) -> Fraction:
        """The ratio r = global_batch / reference_batch, exactly."""
        return Fraction(self.global_batch, self.reference_batch)

    @property
    def shares(self) -> tuple[int, ...]:
        """Examples of each replica in one step: rows floor(i * n / N) to floor((i + 1) * n / N) of the global batch."""
        count, replicas = self.global_batch, self.num_replicas
        return tuple((i + 1) * count // replicas - i * count // replicas for i in range(replicas))

    def steps_per_epoch(self, num_examples: int, *, drop_remainder: bool = False) -> int:
        """Returns the steps of one epoch; the last one may be smaller, unless the remainder is dropped.

        Args:
            num_examples: Examples in one epoch.
            drop_remainder: Whether examples that do not fill a global batch are left out.

        Raises:
            BatchError: When `num_examples` is not a positive integer, or nothing is left.
        """
        return _steps(num_examples, self.global_batch, drop_remainder)

    def reference_steps_per_step(self, num_examples: int, *, drop_remainder: bool = False) -> Fraction:
        """Returns how many steps of the reference run one step stands for, when whole epochs are compared.

        It is `batch_ratio`, unless the last batch of an epoch is smaller: 1797 examples are 57 steps of 32, and 8 of
        256, so that one step stands for 57/8 = 7.125 of them and not for 8.

        Args:
            num_examples: Examples in one epoch.
            drop_remainder: Whether examples that do not fill a batch are left out, in both runs.

        Raises:
            BatchError: As `steps_per_epoch`.
        """
        reference = _steps(num_examples, self.reference_batch, drop_remainder)
        return Fraction(reference, self.steps_per_epoch(num_examples, drop_remainder=drop_remainder))

    def steps_to_examples(self, steps: Any) -> Fraction:
        """Returns the examples seen in a number of full steps, fractions of one too: `steps * global_batch`."""
        return _exact("steps", steps) * self.global_batch

    def examples_to_steps(self, examples: Any) -> Fraction:
        """Returns the full steps that see a number of examples, exactly: `examples / global_batch`."""
        return _exact("examples", examples) / self.global_batch

    def epochs_to_steps(self, epochs: Any, num_examples: int) -> Fraction:
        """Returns the full steps that see a number of epochs, exactly: `epochs * num_examples / global_batch`."""
        return _exact("epochs", epochs) * check_count("num_examples", num_examples) / self.global_batch

    def steps_to_epochs(self, steps: Any, num_examples: int) -> Fraction:
        """Returns the epochs seen in a number of full steps, exactly: `steps * global_batch / num_examples`."""
        return _exact("steps", steps) * self.global_batch / check_count("num_examples", num_examples)

    def steps_to_reference_steps(self, steps: Any) -> Fraction:
        """Returns the steps of the reference run that see as many examples: `steps * batch_ratio`."""
        return _exact("steps", steps) * self.batch_ratio


def _derive(known: dict[str, Any]) -> dict[str, Any]:
    """Returns the five facts of which at least two are known."""
    received = ", ".join(f"{name}={plain(Fraction(value)):g}" for name, value in known.items()) or "none of them"
    if len(known) < 2:
        raise BatchError(
            "Two of `per_replica_batch`, `micro_batch`, `accumulation`, `num_replicas` and `global_batch` must be "
            f"given.\nReceived: {received}. Give, for example, per_replica_batch=64 and num_replicas=8."
        )
    replicas = known.get("num_replicas") or _count_replicas(known, received)
    total = _count_examples(known, replicas, received)
    if total < replicas:
        raise BatchError(
            f"`global_batch` must be at least the number of replicas ({replicas}).\n"
            f"Received: {received}. Use fewer replicas, or a global batch of {replicas} or more."
        )
    largest = math.ceil(Fraction(total, replicas))
    micro = known.get("micro_batch") or math.ceil(largest / known.get("accumulation", 1))
    steps = known.get("accumulation") or math.ceil(largest / micro)
    # Either is the smallest that does; 10 examples in 6 micro-steps are at most 2 at a time, though 5 would do.
    if steps != math.ceil(largest / micro) and (micro != math.ceil(largest / steps) or steps > largest):
        raise _contradiction("`micro_batch` times `accumulation` must be `per_replica_batch`, or just above", received)
    mean = Fraction(total, replicas)
    return {
        "per_replica_batch": int(mean) if mean.denominator == 1 else mean,
        "micro_batch": micro,
        "accumulation": steps,
        "num_replicas": replicas,
        "global_batch": total,
    }


def _count_replicas(known: dict[str, Any], received: str) -> int:
    if "global_batch" in known and "per_replica_batch" in known:
        replicas = Fraction(known["global_batch"]) / known["per_replica_batch"]
        if replicas.denominator != 1:
            raise _contradiction("`global_batch` must be a whole multiple of `per_replica_batch`", received)
        return int(replicas)
    if known.keys() >= {"global_batch", "micro_batch", "accumulation"}:
        return math.ceil(Fraction(known["global_batch"], known["micro_batch"] * known["accumulation"]))
    return 1


def _count_examples(known: dict[str, Any], replicas: int, received: str) -> int:
    share: Any = known.get("per_replica_batch")
    if share is None and "micro_batch" in known:
        share = known["micro_batch"] * known.get("accumulation", 1)
    if share is None and "global_batch" not in known:
        raise BatchError(
            "The number of examples must follow from what is given.\n"
            f"Received: {received}. Give per_replica_batch, micro_batch or global_batch as well."
        )
    total = Fraction(known["global_batch"]) if "global_batch" in known else Fraction(share) * replicas
    if total.denominator != 1 or ("per_replica_batch" in known and share * replicas != total):
        raise _contradiction("`global_batch` must be `per_replica_batch` times `num_replicas`", received)
    return int(total)


def _contradiction(rule: str, received: str) -> BatchError:
    return BatchError(f"{rule}.\nReceived: {received}. Leave out the number that should follow from the others.")


def _steps(num_examples: int, batch: int, drop_remainder: bool) -> int:
    count = check_count("num_examples", num_examples)
    steps = count // batch if drop_remainder else math.ceil(Fraction(count, batch))
    if steps == 0:
        raise BatchError(
            f"An epoch must have at least one step.\n"
            f"Received: num_examples={num_examples} with a batch of {batch}, remainder dropped. "
            "Keep the remainder, or use a smaller batch."
        )
    return steps


def check_count(name: str, value: Any) -> Any:
    """Returns a number of examples, replicas or steps, once it is known to be one.

    Raises:
        BatchError: When it is not a positive integer; a `per_replica_batch` may be a `Fraction`.
    """
    # bool is an int to Python; and only a mean share may be a fraction.
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not (whole or (name == "per_replica_batch" and isinstance(value, Fraction))) or value <= 0:
        raise BatchError(
            f"`{name}` must be a positive integer.\nReceived: {name}={show(value)}. Give a whole number of 1 or more."
        )
    if value > MAX_COUNT:
        raise BatchError(
            f"`{name}` must be at most {MAX_COUNT:.0e}: a float holds no larger number of examples exactly.\n"
            f"Received: {name}={show(value)}. Give the number that was meant."
        )
    return int(value) if whole else value


def _exact(name: str, value: Any) -> Fraction:
    if not is_number(value) or value < 0:
        raise BatchError(
            f"`{name}` must be a number, 0 or more.\nReceived: {name}={show(value)}. Give how many there are."
        )
    return exact_fraction(value)


def check_one_batch(per_replica_batch: Any, global_batch: Any) -> None:
    """Checks the two batch sizes of a script, of which one is given.

    Raises:
        BatchError: When none or both are given, or one is no positive integer.
    """
    given = {"per_replica_batch": per_replica_batch, "global_batch": global_batch}
    received = ", ".join(f"{name}={value!r}" for name, value in given.items())
    if (per_replica_batch is None) == (global_batch is None):
        raise BatchError(
            "Exactly one of `per_replica_batch` and `global_batch` must be given.\n"
            f"Received: {received}. Give `per_replica_batch` to grow the batch with the replicas, `global_batch` to "
            "keep it."
        )
    for name, value in given.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise BatchError(f"`{name}` must be a positive integer.\nReceived: {name}={value!r}.")

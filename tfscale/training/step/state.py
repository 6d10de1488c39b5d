"""What do the variables of a step hold, and how is that put back?"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfscale.replicas.counted import is_counted
from tfscale.replicas.made import made_under
from tfscale.replicas.undisturbed import undisturbed
from tfscale.training.step.own_numbers import OwnNumbers

# Counters, weights and flags have less numbers than this.
_FEW = 17
# From 0 to 2 in no order, as many as no row or filter has numbers in it.
_SHARES = np.arange(1, 1022) * 0.6180339887498949 % 1 * 2


def shake(value: tf.Tensor, share: float) -> tf.Tensor:
    """Numbers that are others by at most twice this share of themselves, and by the share in the mean."""
    # What a number becomes less is not what it becomes more.
    shares = _SHARES if share > 0 else _SHARES[::-1]
    factors = np.resize(1.0 + share * shares, tuple(value.shape))
    return value * tf.constant(factors, value.dtype)


class State:
    """Variables of a strategy, with all copies in this process.

    Args:
        strategy: Under whose scope they were made.
        numbers: Of Python, that go with them.
    """

    def __init__(self, strategy: tf.distribute.Strategy, numbers: OwnNumbers | None = None):
        self._strategy = strategy
        self._numbers = numbers
        self._named: dict[str, Any] = {}
        self._copies: dict[int, tf.Variable] = {}
        self._averaged: set[int] = set()
        self._elsewhere: dict[int, np.ndarray] = {}

    def name(self, variables: Iterable[Any]) -> None:
        """Adds Keras variables, to be read by their paths."""
        for variable in variables:
            path = variable.path
            while path in self._named and self._named[path] is not variable.value:
                path += "'"
            self._named[path] = variable.value
            self._copies.update(self._copies_of(variable.value))

    def average(self, variables: Iterable[Any]) -> None:
        """Has Keras variables read as the mean of their copies, such as gradients that accumulate on each replica."""
        self._averaged.update(id(variable.value) for variable in variables)

    def find_elsewhere(self, values: Iterable[tuple[Any, np.ndarray]]) -> None:
        """Says of Keras variables what other workers' copies hold of them, where that is not what those here do."""
        self._elsewhere = {id(variable.value): value for variable, value in values}

    def clear_averaged(self) -> None:
        """Sets what is read as a mean to zero on every replica."""
        self._clear(lambda variable: id(variable) in self._averaged)

    def clear_counted(self) -> None:
        """Sets what replicas count to zero on each of them."""
        self._clear(is_counted)

    def _clear(self, is_meant: Callable[[Any], bool]) -> None:
        for variable in filter(is_meant, self._named.values()):
            for copy in self._copies_of(variable).values():
                _set(copy, tf.zeros(copy.shape, copy.dtype))

    def collect(self) -> None:
        """Gives what the replicas have counted to the first one here.

        Other workers are taken to have as much, as they do after a reset, unless `find_elsewhere` says otherwise.
        """
        workers = self._strategy.num_replicas_in_sync // len(self._strategy.extended.worker_devices)
        for variable in filter(is_counted, self._named.values()):
            first, *others = self._copies_of(variable).values()
            held = [value_of(copy).numpy() for copy in (first, *others)]
            total = np.sum(held, axis=0, dtype=first.dtype.as_numpy_dtype) + self._elsewhere.get(id(variable), 0)
            values = [total * workers if first.dtype.is_floating else total] + [0] * len(others)
            # Most have counted nothing, and to set one takes longer than to read it.
            for copy, before, value in zip((first, *others), held, values, strict=True):
                if np.any(before != value):
                    _set(copy, tf.constant(value, copy.dtype, copy.shape))

    def add(self, variables: Iterable[tf.Variable]) -> None:
        """Adds copies of other variables that a step was seen to use; of those that nobody names, to be read too."""
        for variable in variables:
            self._copies.update(self._copies_of(variable))

    def _all(self) -> dict[str, Any]:
        named = {copy for variable in self._named.values() for copy in self._copies_of(variable)}
        others = [copy for identity, copy in self._copies.items() if identity not in named]
        # Of all replicas' copies the first is read.
        return self._named | {copy.name: copy for copy in others if "/replica_" not in copy.name}

    def _copies_of(self, variable: Any) -> dict[int, tf.Variable]:
        return {id(copy): copy for copy in self._strategy.experimental_local_results(variable)}

    @contextlib.contextmanager
    def put_back(self) -> Iterator[None]:
        """Gives every copy the value that it had before, to the bit."""
        before = [(copy, value_of(copy)) for copy in self._copies.values()]
        try:
            with contextlib.nullcontext() if self._numbers is None else self._numbers.unchanged():
                yield
        finally:
            with undisturbed():
                for copy, value in before:
                    _set(copy, value)

    def numbers(self, leave_out: Collection[Any]) -> list[list[tf.Variable]]:
        """Copies of the variables of few numbers, by variable.

        Args:
            leave_out: Keras variables that are none of them.
        """
        kept = {copy for variable in leave_out for copy in self._copies_of(variable.value)}
        together = [list(self._copies_of(variable).values()) for variable in made_under(self._strategy).variables]
        known = {id(copy) for copies in together for copy in copies}
        together += [[copy] for identity, copy in self._copies.items() if identity not in known]
        return [
            copies
            for copies in together
            if id(copies[0]) in self._copies
            and id(copies[0]) not in kept
            and (copies[0].shape.num_elements() or _FEW) < _FEW
        ]

    def put(self, values: Iterable[tuple[tf.Variable, float | np.ndarray]]) -> None:
        """Gives copies values, or one in all their numbers, or the largest that they can hold."""
        for copy, value in values:
            if isinstance(value, np.ndarray):
                _set(copy, tf.constant(value, copy.dtype))
                continue
            most = copy.dtype.max if copy.dtype.is_integer else value
            _set(copy, tf.fill(copy.shape, tf.cast(min(value, most), copy.dtype)))

    def shake(self, share: float) -> dict[str, np.ndarray]:
        """Changes all weights that are trained by a share of themselves; returns by name what was added to them."""
        added = {}
        for name, variable in self._all().items():
            if not (getattr(variable, "trainable", False) and variable.dtype.is_floating):
                continue
            for copy in reversed(self._copies_of(variable).values()):
                value = value_of(copy)
                _set(copy, shake(value, share))
                added[name] = (value_of(copy) - value).numpy()
        return added

    def read(self, *, alone: bool = False) -> dict[str, np.ndarray]:
        """By name: the first copy, or the sum of what the replicas have counted.

        Args:
            alone: Whether the first replica alone has run.
        """
        values = {} if self._numbers is None else self._numbers.read()
        for name, variable in self._all().items():
            copies = [value_of(copy).numpy() for copy in self._strategy.experimental_local_results(variable)]
            if id(variable) in self._averaged and not alone:
                values[name] = np.mean(copies, axis=0)
            else:
                values[name] = np.sum(copies, axis=0) if is_counted(variable) else copies[0]
        return values

    def apart(self) -> dict[str, np.ndarray]:
        """By name: of variables whose copies should be equal and are not, the copy that is farthest from the first."""
        names = {id(variable): name for name, variable in self._named.items()}
        values = {}
        for variable in [*self._named.values(), *made_under(self._strategy).variables]:
            first, *others = self._strategy.experimental_local_results(variable)
            is_own = is_counted(variable) or id(variable) in self._averaged
            # What is not a number of floating point may be the state of a replica's generator.
            if is_own or not others or not first.dtype.is_floating or id(first) not in self._copies:
                continue
            held, *copies = (value_of(copy).numpy() for copy in (first, *others))
            gaps = [_largest_gap(copy, held) for copy in copies]
            if max(gaps) != 0.0:
                values[names.get(id(variable), first.name)] = copies[int(np.argmax(gaps))]
        return values

    def divided(self) -> set[str]:
        """Names of the variables in which each replica has a part of the whole."""
        return {name for name, each in self._named.items() if is_counted(each) or id(each) in self._averaged}


def value_of(copy: tf.Variable) -> tf.Tensor:
    """A fifth of the time that `read_value` takes, which asks first whether it is traced, distributed or cached."""
    return tf.raw_ops.ReadVariableOp(resource=copy.handle, dtype=copy.dtype)


def _set(copy: tf.Variable, value: tf.Tensor) -> None:
    """As `_value_of`: a look sets some hundred variables, again and again."""
    tf.raw_ops.AssignVariableOp(resource=copy.handle, value=value)


def _largest_gap(copy: np.ndarray, held: np.ndarray) -> float:
    with np.errstate(invalid="ignore", over="ignore"):
        return float(np.max(np.abs((copy - held).astype(np.float64)), initial=0.0))

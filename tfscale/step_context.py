"""What does the step that a thread traces or runs carry?

Every replica is traced, or run, by a thread of its own. What its step carries is in one frozen `StepContext` of that
thread, and changes for as long as a `with` lasts; a new thread inherits nothing. What can be carried is declared as a
`Slot`, beside the code that asks for it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sized
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


def show(value: Any) -> str:
    """A value as it shows itself, or else its class."""
    kind: Any = type(value)
    return kind.__name__ if kind.__repr__ is object.__repr__ else repr(value)


@dataclasses.dataclass(frozen=True, repr=False)
class StepContext:
    """All that a thread's step carries."""

    carried: Mapping[Slot[Any], Any] = dataclasses.field(default_factory=lambda: types.MappingProxyType({}))
    """Since a `with`, by slot."""
    begun: dict[Slot[Any], Any] = dataclasses.field(default_factory=dict)
    """What else the thread has asked for, and begun with; a step may fill it. It lasts as long as the thread."""

    def replaced(self, slot: Slot[Value], value: Value) -> StepContext:
        """The same, but for one slot."""
        return dataclasses.replace(self, carried=types.MappingProxyType({**self.carried, slot: value}))

    def __repr__(self) -> str:
        values = {**self.begun, **self.carried}
        said = [f"{slot.name}={slot.shown(value)}" for slot, value in values.items() if not _is_nothing(value)]
        return f"StepContext({', '.join(said)})"


def _is_nothing(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, Sized) and len(value) == 0)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.context = StepContext()


_THREAD = _Thread()


def step_context() -> StepContext:
    """What this thread's step carries now."""
    return _THREAD.context


@contextlib.contextmanager
def continuing(context: StepContext) -> Iterator[None]:
    """Has this thread carry what another one does, whose step it goes on with meanwhile.

    Args:
        context: Of that thread, from `step_context()`.
    """
    outer = _THREAD.context
    _THREAD.context = context
    try:
        yield
    finally:
        _THREAD.context = outer


class Slot(Generic[Value]):
    """One thing that a step may carry.

    Args:
        name: For people.
        begin: Makes what a thread begins with.
        shown: What is printed of it.

    Example:
        >>> from tfscale.step_context import Slot, step_context
        >>> rows = Slot[int | None]("rows")
        >>> with rows.carrying(3):
        ...     print(rows.value, step_context())
        3 StepContext(rows=3)
        >>> print(rows.value, step_context())
        None StepContext()
    """

    def __init__(
        self, name: str, begin: Callable[[], Any] = lambda: None, *, shown: Callable[[Any], object] = show
    ) -> None:
        self.name = name
        self.shown = shown
        self._begin = begin

    @property
    def value(self) -> Value:
        """What the step of this thread carries."""
        context = _THREAD.context
        if self in context.carried:
            carried: Value = context.carried[self]
            return carried
        if self not in context.begun:
            context.begun[self] = self._begin()
        begun: Value = context.begun[self]
        return begun

    @contextlib.contextmanager
    def carrying(self, value: Value) -> Iterator[None]:
        """Has the step of this thread carry `value` meanwhile; what was before comes back, whatever happens."""
        with continuing(_THREAD.context.replaced(self, value)):
            yield


class Flag(Slot[bool]):
    """False, but where this thread has raised it."""

    def __init__(self, name: str) -> None:
        super().__init__(name, bool)

    @property
    def is_raised(self) -> bool:
        """Whether it is."""
        return self.value

    def raised(self) -> contextlib.AbstractContextManager[None]:
        """Raises it meanwhile; what was before comes back."""
        return self.carrying(True)

"""What does tfscale know about an object that is not its own?

Three kinds of object have an owner of all that is known of them: a model `PreparedModel`, a strategy `ReplicaGroup`,
and an optimizer `GradientRoute` (in `gradients`). Each kind has one registry; an owner prints what is known, and goes
when its object goes. What can be known is declared as a `Fact`, beside the code that finds it out.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

import keras

from tfscale.framework.models import flat_layers
from tfscale.step_context import show

Value = TypeVar("Value")


class Owner:
    """All that is known of one object; the object's copies and files know nothing of it.

    What is known must not refer to the object, but by a weak reference: neither would ever go.

    Args:
        subject: The object.
    """

    _registry: ClassVar[weakref.WeakKeyDictionary[Any, Any]]

    def __init_subclass__(cls) -> None:
        cls._registry = weakref.WeakKeyDictionary()

    def __init__(self, subject: Any):
        self._subject = weakref.ref(subject)
        self._known: dict[Fact[Any], Any] = {}

    @classmethod
    def of(cls, subject: Any) -> Self:
        """The owner of what is known of `subject`; there is one."""
        subject = cls.key(subject)
        return cls._registry.setdefault(subject, cls(subject))

    @classmethod
    def find(cls, subject: Any) -> Self | None:
        """As `of`; None where nothing is known."""
        return cls._registry.get(cls.key(subject))

    @classmethod
    def everyone(cls) -> list[Self]:
        """Those of all objects that there are; other threads may add to them meanwhile."""
        subjects = (reference() for reference in cls._registry.keyrefs())
        found = (cls.find(subject) for subject in subjects if subject is not None)
        return [owner for owner in found if owner is not None]

    @staticmethod
    def key(subject: Any) -> Any:
        """The object that is meant by `subject`."""
        return subject

    @property
    def known(self) -> dict[Fact[Any], Any]:
        """What is known, by fact."""
        return self._known

    def __repr__(self) -> str:
        subject = self._subject()
        name = getattr(subject, "name", None)
        title = type(self).__name__ + (" of nothing any more" if subject is None else f" of {type(subject).__name__}")
        facts = [f"{fact.name}={fact.shown(value)}" for fact, value in list(self._known.items())]
        return f"{title}{'' if name is None else f' {name!r}'}: {', '.join(facts) or 'nothing is known'}"


class Fact(Generic[Value]):
    """One thing that may be known of an object.

    Args:
        owner: Of what kind of object.
        name: For people.
        shown: What is printed of it.

    Example:
        >>> import keras
        >>> from tfscale.replicas.owners import Fact, PreparedModel
        >>> rows = Fact[int](PreparedModel, "rows")
        >>> model = keras.Sequential(name="small")
        >>> rows.set(model, 3)
        3
        >>> rows.of(model)
        3
        >>> PreparedModel.of(model)
        PreparedModel of Sequential 'small': rows=3
    """

    def __init__(self, owner: type[Owner], name: str, shown: Callable[[Value], object] = show):
        self.name = name
        self.shown = shown
        self._owner = owner

    @overload
    def of(self, subject: Any) -> Value | None: ...
    @overload
    def of(self, subject: Any, default: Value) -> Value: ...
    def of(self, subject: Any, default: Value | None = None) -> Value | None:
        """What is known of `subject`, or `default`."""
        owner = self._owner.find(subject)
        return default if owner is None else owner.known.get(self, default)

    def __contains__(self, subject: Any) -> bool:
        owner = self._owner.find(subject)
        return owner is not None and self in owner.known

    def __getitem__(self, subject: Any) -> Value:
        value = self.of(subject)
        if value is None:
            raise KeyError(self.name)
        return value

    def set(self, subject: Any, value: Value) -> Value:
        """Makes `value` known."""
        self._owner.of(subject).known[self] = value
        return value

    def ensure(self, subject: Any, value: Value) -> Value:
        """Makes `value` known where nothing is; returns what is known now."""
        known: Value = self._owner.of(subject).known.setdefault(self, value)
        return known

    def forget(self, subject: Any) -> Value | None:
        """Returns what was known, and is no longer."""
        owner = self._owner.find(subject)
        return None if owner is None else owner.known.pop(self, None)

    def everywhere(self) -> list[Value]:
        """What is known of all objects that there are."""
        found = (owner.known.get(self) for owner in self._owner.everyone())
        return [value for value in found if value is not None]


class PreparedModel(Owner):
    """What is known of a model, or of a layer: in Keras a model is one. It prints what its layers are known by, too."""

    def __repr__(self) -> str:
        model = self._subject()
        layers = flat_layers(model) if isinstance(model, keras.Model) else []
        inner = [PreparedModel.find(layer) for layer in layers if layer is not model]
        return "\n  ".join([super().__repr__(), *(repr(each) for each in inner if each is not None and each.known)])


class ReplicaGroup(Owner):
    """What is known of a strategy: of its replicas, and of what they do together."""

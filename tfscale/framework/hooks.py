"""How is an unpromised name of TensorFlow or Keras read or replaced?

Closed: where the name is gone, or takes other arguments than it did, that is an error with the name in it, and never a
hook that nobody calls. A hook that nobody calls is a wrong number.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tfscale.errors import VersionError

_FRAMEWORKS = ("keras", "tensorflow")


def read(owner: Any, name: str) -> Any:
    """An attribute of an object of TensorFlow's or Keras's, or of a subclass.

    Args:
        owner: The object.
        name: As those releases call it that tfscale was tried on.

    Raises:
        VersionError: When there is no such attribute.

    Example:
        >>> import keras
        >>> read(keras.Sequential(), "_initial_epoch") is None
        True
        >>> read(keras.Sequential(), "_first_epoch")
        Traceback (most recent call last):
        ...
        tfscale.errors.VersionError: tfscale stands on `_first_epoch` of Keras's `Sequential`, which is not there: ...
    """
    try:
        return getattr(owner, name)
    except AttributeError as error:
        raise _unknown(type(owner), name, "which is not there") from error


def assign(owner: Any, name: str, value: Any) -> None:
    """Sets an attribute that is there.

    Args:
        owner: The object.
        name: Of the attribute.
        value: Its new value.

    Raises:
        VersionError: When there is no such attribute.
    """
    read(owner, name)
    setattr(owner, name, value)


def replace(owner: Any, name: str, function: Callable[..., Any]) -> Any:
    """Puts a function in the place of a method of one object.

    Args:
        owner: The object.
        name: Of the method.
        function: Takes what the method takes, by the same names.

    Returns:
        The method of its class, bound to the object.

    Raises:
        VersionError: When the class has no such method, or one that takes something else.

    Example:
        >>> import keras
        >>> clip = replace(keras.optimizers.SGD(), "_clip_gradients", lambda grads: grads)
        >>> clip.__name__
        '_clip_gradients'
        >>> replace(keras.optimizers.SGD(), "_clip_gradients", lambda gradients, variables: gradients)
        Traceback (most recent call last):
        ...
        tfscale.errors.VersionError: tfscale stands on `_clip_gradients` of Keras's `BaseOptimizer`, which takes
        (grads) and not (gradients, variables)...
    """
    own = own_method(owner, name)
    expect(type(owner), name, [each.name for each in inspect.signature(function).parameters.values()])
    setattr(owner, name, function)
    return own


def expect(kind: type, name: str, takes: Sequence[str] | None) -> None:
    """Raises unless a class of TensorFlow's or Keras's, or the one that it was made from, has what is replaced.

    Args:
        kind: The class.
        name: Of its method or property.
        takes: The names of what the method takes, `self` apart; None for a property.

    Raises:
        VersionError: When there is no such name, or it takes something else.
    """
    theirs = getattr(_theirs(kind, name), name, None)
    if theirs is None:
        raise _unknown(kind, name, "which is not there")
    if takes is None:
        return
    if not inspect.isroutine(theirs):
        raise _unknown(kind, name, "which is no method")
    found = list(inspect.signature(theirs).parameters)[1:]
    if found != list(takes):
        raise _unknown(kind, name, f"which takes ({', '.join(found)}) and not ({', '.join(takes)})")


def own_method(owner: Any, name: str) -> Any:
    """The method of the object's class, bound to the object, whatever was put in its place.

    Args:
        owner: The object.
        name: Of the method.

    Raises:
        VersionError: When the class has no such method.
    """
    method: Any = getattr(type(owner), name, None)
    if not callable(method):
        raise _unknown(type(owner), name, "which is not there")
    return method.__get__(owner)


def _theirs(kind: type, name: str = "") -> type:
    """The class of TensorFlow's or Keras's that has the name first; or, where none has it, the first one."""
    classes = [each for each in kind.__mro__ if each.__module__.partition(".")[0] in _FRAMEWORKS]
    return next((each for each in classes if name in vars(each)), classes[0] if classes else kind)


def _unknown(kind: type, name: str, found: str) -> VersionError:
    theirs = _theirs(kind, name)
    package = {"keras": "Keras", "tensorflow": "TensorFlow"}.get(theirs.__module__.partition(".")[0], "somebody")
    return VersionError(
        f"tfscale stands on `{name}` of {package}'s `{theirs.__name__}`, {found}: with it a step would not be that of "
        "one replica.\n"
        f"Received: {_release(package)}. `tfscale doctor` names the releases that were tried; install one of those."
    )


def _release(package: str) -> str:
    """The release of a package that is imported."""
    module = sys.modules.get(package.lower())
    return f"{package} {getattr(module, '__version__', 'of an unknown release')}"

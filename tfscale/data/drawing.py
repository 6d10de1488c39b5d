"""How is a batch looked at that is made at random, and is to be made again?"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


@contextlib.contextmanager
def drawing_again(data: Any) -> Iterator[None]:
    """Has what is drawn meanwhile drawn again afterwards.

    By Python's and NumPy's own generators, those that `data` holds, and those of the module of its class.

    Args:
        data: Makes batches.

    Example:
        >>> import random
        >>> with drawing_again(data=None):
        ...     first = random.random()
        >>> random.random() == first
        True
    """
    of_module = vars(sys.modules.get(type(data).__module__, random))
    held = [*of_module.values(), *getattr(data, "__dict__", {}).values()]
    put_back = [_restorer(each) for each in (random, np.random, *held)]
    try:
        yield
    finally:
        for call in filter(None, put_back):
            call()


def _restorer(generator: Any) -> Callable[[], None] | None:
    if generator is random or isinstance(generator, random.Random):
        state = generator.getstate()
        return lambda: generator.setstate(state)
    if generator is np.random or isinstance(generator, np.random.RandomState):
        state = generator.get_state()
        return lambda: generator.set_state(state)
    if isinstance(generator, np.random.Generator):
        state = generator.bit_generator.state
        return lambda: setattr(generator.bit_generator, "state", state)
    return None

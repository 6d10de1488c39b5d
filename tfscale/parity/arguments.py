"""What is common to all ways of comparing runs of a script: which script, how often, how long?"""

import os
import sys
from collections.abc import Callable
from typing import Any

from tfscale.errors import ParityError
from tfscale.parity.experiment import IN_RUN
from tfscale.parity.request import Script
from tfscale.parity.target import find_target


def make_script(
    build: str | Callable[[], Any],
    data: str | Callable[[], Any],
    *,
    epochs: int,
    seed: int,
    global_batch: int | None,
    timeout_s: float,
) -> Script:
    """Checks what every run gets, and returns it.

    Raises:
        ParityError: When an argument is wrong, or this is a run itself.
    """
    _check_numbers(global_batch=global_batch, epochs=epochs, seed=seed, timeout_s=timeout_s)
    if IN_RUN in os.environ:
        raise ParityError(
            "`verify` must not be called while its own runs import the script.\n"
            "Received: a call at import. Put it under `if __name__ == '__main__':`."
        )
    return Script(
        build=find_target(build, "build"),
        data=find_target(data, "data"),
        epochs=epochs,
        seed=seed,
        global_batch=global_batch,
        import_paths=tuple(path for path in sys.path if path),
    )


def _check_numbers(*, global_batch: int | None, epochs: int, seed: int, timeout_s: float) -> None:
    counts = {"epochs": epochs} if global_batch is None else {"epochs": epochs, "global_batch": global_batch}
    for name, value in counts.items():
        if type(value) is not int or value < 1:
            raise ParityError(f"`{name}` must be a positive integer.\nReceived: {name}={value!r}.")
    # What NumPy takes.
    if type(seed) is not int or not 0 <= seed < 2**32:
        raise ParityError(f"`seed` must be an integer from 0 to 2**32 - 1.\nReceived: seed={seed!r}.")
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s > 0:
        raise ParityError(f"`timeout_s` must be a positive number of seconds.\nReceived: timeout_s={timeout_s!r}.")

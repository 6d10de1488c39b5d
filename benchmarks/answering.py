"""How does a process that a benchmark has started answer its parent? The other end of `processes.Worker`.

Standard library only, for a process that has to leave its network before anything starts a thread.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any


def answering() -> Callable[..., None]:
    """Returns what sends its keyword arguments to the parent, as a line of JSON.

    Whatever a library prints goes to the log from now on; only answers go to the parent.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    return answer

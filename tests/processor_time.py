"""How much work a command is, on whatever machine, beside whatever else it does."""

import resource
import subprocess
import sys
from collections.abc import Callable

# A command that imports a little of the library takes 6 to 10, NumPy alone another 7, TensorFlow more than 100.
AT_ONCE = 16.0


def in_starts_of_python(run: Callable[[], object], tries: int = 5) -> float:
    """The processor's time of a command, in that of a Python that is started and ends.

    Args:
        run: Starts the command, and waits for its end.
        tries: The least of so many of each counts; they take turns.
    """
    taken, starts = [], []
    for _ in range(tries):
        starts.append(_of_children(lambda: subprocess.run([sys.executable, "-c", ""], check=True, timeout=60)))
        taken.append(_of_children(run))
    return min(taken) / min(starts)


def _of_children(run: Callable[[], object]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

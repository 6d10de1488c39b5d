"""How many workers can this machine start, and why did one not start?"""

import resource

from tfscale.errors import LaunchError
from tfscale.launch.worker_plan import Worker

# More than any machine has GPUs or cores; a mistyped number must not keep it busy for minutes.
_MAX_WORKERS = 1000
# The launcher's own: its streams, the guard, the signals, and those that starting a process takes.
_OWN_FILES = 40


def check_num_workers(num_workers: int) -> int:
    """Returns the number of workers to start on this machine.

    Raises:
        LaunchError: The launcher cannot watch so many.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    by_files = _MAX_WORKERS if limit == resource.RLIM_INFINITY else max(1, limit - _OWN_FILES)
    if num_workers <= min(_MAX_WORKERS, by_files):
        return num_workers
    why = f": it opens a file for each, and may open {limit} (`ulimit -n`)" if by_files < _MAX_WORKERS else ""
    raise LaunchError(
        f"The launcher starts {min(_MAX_WORKERS, by_files)} workers on a machine at most{why}.\n"
        f"Received: --workers {num_workers}. Start as many as this machine has GPUs or cores; --hosts names others."
    )


def start_error(worker: Worker, error: OSError) -> LaunchError:
    """Returns the error for a worker that the system does not start."""
    return LaunchError(
        f"Worker {worker.rank} ({worker.address}) must be one that the system can start.\n"
        f"Received: {error.strerror or error}. Start fewer workers, shorten the script's arguments, or raise the "
        f"limits of this user's processes and open files (`ulimit -a`)."
    )

"""Was a worker killed because there was no memory left?"""

from collections.abc import Sequence
from pathlib import Path

_COUNTS = (Path("/proc/vmstat"), Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control"))
_GIB = 1 << 30


def count_kills(files: Sequence[Path] = _COUNTS) -> int:
    """Returns how many processes the kernel has killed for want of memory, on this host and in this container."""
    total = 0
    for file in files:
        try:
            lines = file.read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
    return total


def describe_kill(num_kills: int, peak_bytes: int) -> str:
    """What is said of a worker that ended by SIGKILL.

    Args:
        num_kills: Processes that the kernel has killed for want of memory since the workers were started.
        peak_bytes: The most memory that the worker had; 0 where that is not known.

    Example:
        >>> from tfscale.launch.memory import describe_kill
        >>> describe_kill(0, 3 << 30)
        'It had 3.0 GiB of memory at most. The kernel has killed nothing for want of memory meanwhile.'
    """
    peak = f"It had {peak_bytes / _GIB:.1f} GiB of memory at most. " if peak_bytes else ""
    if not num_kills:
        return f"{peak}The kernel has killed nothing for want of memory meanwhile."
    return (
        f"{peak}The kernel has killed {num_kills} process(es) for want of memory meanwhile, likely this one. Let it "
        "need less: `micro_batch`, a smaller batch, fewer workers on this host, a `dp.dataset` without `cache`."
    )

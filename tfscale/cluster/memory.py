"""How much memory does this process have, and how much has its host left?"""

from pathlib import Path

_PAGE_BYTES = 4096


def read_memory_mib(proc: Path = Path("/proc")) -> tuple[int, int]:
    """Returns what this process has and what is left, in MiB; zeros where the system does not say."""
    try:
        pages = int((proc / "self" / "statm").read_text().split()[1])
        lines = (proc / "meminfo").read_text().splitlines()
        [available] = [line for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError, IndexError):
        return 0, 0
    return pages * _PAGE_BYTES >> 20, int(available.split()[1]) >> 10

"""Are there threads and space enough, and not too many?"""

import re
from collections.abc import Mapping

from tfscale.doctor.finding import ERROR, OK, WARNING, Finding

THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")

_MIB = 2**20
_LOW_BYTES = 1024 * _MIB
_NONE_BYTES = 50 * _MIB
# NCCL and data loaders exchange memory there.
_LOW_SHARED_BYTES = 64 * _MIB
SHARED = "/dev/shm"


def parse_quota(text: str) -> float | None:
    """Returns the cores that a container may use, from the text of `cpu.max`; None where there is no limit.

    Example:
        >>> from tfscale.doctor.machine import parse_quota
        >>> parse_quota("150000 100000"), parse_quota("max 100000")
        (1.5, None)
    """
    match = re.fullmatch(r"([0-9]+) ([1-9][0-9]*)\s*", text)
    return int(match[1]) / int(match[2]) if match else None


def check_threads(
    environ: Mapping[str, str], num_cores: int, quota: float | None, num_workers_here: int
) -> list[Finding]:
    """Judges how many threads TensorFlow is going to start.

    Args:
        environ: The environment.
        num_cores: Cores that this process may run on.
        quota: Cores whose time it may use; None for all.
        num_workers_here: Workers of the job on this host.
    """
    given = {name: environ[name] for name in THREADS if name in environ}
    settings = ", ".join(f"{name}={value}" for name, value in given.items()) or "no settings"
    findings = [Finding(OK, "threads", f"{num_cores} core(s); {settings}")]
    wrong = [name for name, value in given.items() if not value.isdecimal()]
    if wrong:
        findings.append(
            Finding(WARNING, "threads", f"{wrong[0]}={given[wrong[0]]!r} is no number", f"Correct or unset {wrong[0]}.")
        )
        return findings
    many = [name for name in (THREADS[0], THREADS[2]) if int(given.get(name, "0")) > num_cores]
    if many:
        findings.append(
            Finding(
                WARNING,
                "threads",
                f"{many[0]} asks for {given[many[0]]} threads on {num_cores} core(s)",
                f"Unset {many[0]}, or set it to {num_cores}.",
            )
        )
    cores = int(max(1, quota or 0))
    if quota is not None and cores < num_cores and THREADS[0] not in given:
        findings.append(
            Finding(
                WARNING,
                "threads",
                f"this container may use the time of {quota:g} core(s), TensorFlow starts {num_cores} threads",
                f"export {THREADS[0]}={cores} OMP_NUM_THREADS={cores}",
            )
        )
    if num_workers_here > 1 and THREADS[0] not in given:
        findings.append(
            Finding(
                WARNING,
                "threads",
                f"{num_workers_here} workers share this host, each with as many threads as it has cores",
                f"Start them with `tfscale launch`, which divides the cores, or set {THREADS[0]}.",
            )
        )
    return findings


def check_space(free_bytes: Mapping[str, int], num_gpus: int) -> list[Finding]:
    """Judges the free space.

    Args:
        free_bytes: By directory.
        num_gpus: That TensorFlow sees.
    """
    findings = []
    for directory, free in free_bytes.items():
        text = f"{free / _MIB:,.0f} MiB free in {directory}"
        if directory == SHARED:
            if num_gpus and free < _LOW_SHARED_BYTES:
                way_out = "In a container, start it with `--shm-size=1g`."
                findings.append(Finding(WARNING, "space", text, way_out))
        elif free < _NONE_BYTES:
            findings.append(Finding(ERROR, "space", text, "Make room: checkpoints and logs are written there."))
        elif free < _LOW_BYTES:
            findings.append(Finding(WARNING, "space", text, "Make room before a long run writes its checkpoints."))
        else:
            findings.append(Finding(OK, "space", text))
    return findings

"""Does TensorFlow get the GPUs that are here, and can they talk to each other?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfscale.doctor.finding import ERROR, OK, WARNING, Finding

QUERY = (
    "nvidia-smi",
    "--query-gpu=index,name,driver_version,memory.total,memory.used",
    "--format=csv,noheader,nounits",
)

# More than that is somebody's who computes.
_BUSY = 0.25


@dataclass(frozen=True)
class Gpu:
    """One line of `nvidia-smi`; memory in MiB."""

    index: str
    name: str
    driver: str
    total_mib: float
    used_mib: float


def parse_gpus(listing: str) -> list[Gpu]:
    """Reads what `nvidia-smi` prints for `QUERY`; lines of another form are left out.

    Example:
        >>> from tfscale.doctor.gpus import parse_gpus
        >>> parse_gpus("0, Tesla T4, 550.54.15, 15360, 3")
        [Gpu(index='0', name='Tesla T4', driver='550.54.15', total_mib=15360.0, used_mib=3.0)]
    """
    found = []
    for line in listing.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) == 5 and words[0].isdecimal():
            index, name, driver, total, used = words
            found.append(Gpu(index, name, driver, _number(total), _number(used)))
    return found


def _number(text: str) -> float:
    return float(text) if text.replace(".", "", 1).isdecimal() else 0.0


def check_driver(listing: str | None, problem: str) -> list[Finding]:
    """Judges what the driver says.

    Args:
        listing: What `nvidia-smi` printed; None where there is no such program.
        problem: Why it failed; empty where it did not.
    """
    if listing is None:
        return [Finding(OK, "driver", "no nvidia-smi: no NVIDIA driver is installed")]
    gpus = parse_gpus(listing)
    if problem or not gpus:
        return [
            Finding(
                WARNING,
                "driver",
                f"nvidia-smi lists no GPU: {problem or 'it printed nothing'}",
                "Without GPUs, leave it so. Else load or repair the driver; start a container with `--gpus all`.",
            )
        ]
    names = ", ".join(f"{gpu.index}: {gpu.name}" for gpu in gpus)
    findings = [Finding(OK, "driver", f"driver {gpus[0].driver}; {names}")]
    if len({gpu.name for gpu in gpus}) > 1:
        findings.append(
            Finding(
                WARNING,
                "driver",
                "the GPUs are of several kinds: the slowest sets the pace",
                "Leave slow ones out with CUDA_VISIBLE_DEVICES, or give them less: dp.dataset(worker_load=...).",
            )
        )
    busy = [gpu for gpu in gpus if gpu.total_mib and gpu.used_mib / gpu.total_mib > _BUSY]
    if busy:
        used = ", ".join(f"{gpu.index}: {gpu.used_mib:.0f} of {gpu.total_mib:.0f} MiB" for gpu in busy)
        findings.append(
            Finding(
                WARNING,
                "driver",
                f"memory in use by others: GPU {used}",
                "End what `nvidia-smi` lists, or leave those GPUs out with CUDA_VISIBLE_DEVICES.",
            )
        )
    return findings


def check_visible(
    listed: int, seen: Sequence[str] | None, environ: Mapping[str, str], cuda: str | None
) -> list[Finding]:
    """Compares the GPUs that the driver lists with those that TensorFlow sees.

    Args:
        listed: How many the driver lists.
        seen: TensorFlow's; None where it did not start.
        environ: The environment.
        cuda: The version of CUDA that TensorFlow was built with; None for none.
    """
    if seen is None:
        return []
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    limit = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible})"
    if seen:
        return [Finding(OK, "gpus", f"TensorFlow sees {len(seen)}{limit}")]
    if not listed or limit:
        return [Finding(OK, "gpus", f"TensorFlow sees none{limit}: replicas run on CPUs")]
    if cuda is None:
        return [
            Finding(
                ERROR, "gpus", "this TensorFlow was built without CUDA", 'pip install "tensorflow[and-cuda]" instead.'
            )
        ]
    return [
        Finding(
            ERROR,
            "gpus",
            f"the driver lists {listed}, TensorFlow sees none",
            f'Install CUDA {cuda} as TensorFlow wants it: pip install "tensorflow[and-cuda]"; or a newer driver.',
        )
    ]


def check_nccl(num_gpus: int, num_workers: int, found: str) -> Finding:
    """Judges whether the GPUs have the library by which they exchange gradients.

    Args:
        num_gpus: That TensorFlow sees.
        num_workers: Of the job.
        found: Where NCCL was found; empty for nowhere.
    """
    if num_gpus == 0 or num_gpus * num_workers == 1:
        return Finding(OK, "nccl", "not needed: there are no GPUs that exchange gradients" + (found and f" ({found})"))
    if found:
        return Finding(OK, "nccl", found)
    return Finding(
        WARNING,
        "nccl",
        "NCCL was not found among the installed packages and libraries",
        'pip install "tensorflow[and-cuda]"; a TensorFlow that has it built in logs "nccl" in make_strategy.',
    )

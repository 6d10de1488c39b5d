"""Does TensorFlow get the GPUs that are here, and can they talk to each other?"""

from collections.abc import Mapping, Sequence

from tfscale.cluster.nvml import NOT_INSTALLED, Driver, Gpu
from tfscale.doctor.finding import ERROR, OK, WARNING, Finding

# More than that is somebody's who computes.
_BUSY = 0.25
_MIB = 2**20


def check_driver(driver: Driver, problem: str) -> list[Finding]:
    """Judges what the driver says.

    Args:
        driver: Its answer.
        problem: Why it could not be asked; empty where it could.
    """
    if driver.absence == NOT_INSTALLED and not problem:
        return [Finding(OK, "driver", f"an NVIDIA driver {NOT_INSTALLED}")]
    gpus = driver.gpus
    if problem or not gpus:
        why = f"the NVIDIA driver {driver.absence}" if driver.absence else f"driver {driver.version} lists no GPU"
        return [
            Finding(
                WARNING,
                "driver",
                problem.replace("\n", " ") or why,
                "Without GPUs, leave it so. Else load or repair the driver; start a container with `--gpus all`.",
            )
        ]
    names = ", ".join(f"{gpu.index}: {gpu.name}" for gpu in gpus)
    findings = [Finding(OK, "driver", f"driver {driver.version}; {names}")]
    if len({gpu.name for gpu in gpus}) > 1:
        findings.append(
            Finding(
                WARNING,
                "driver",
                "the GPUs are of several kinds: the slowest sets the pace",
                "Leave slow ones out with CUDA_VISIBLE_DEVICES, or give them less: dp.dataset(worker_load=...).",
            )
        )
    return findings + _check_memory(gpus)


def _check_memory(gpus: Sequence[Gpu]) -> list[Finding]:
    used = [
        f"{gpu.index}: {gpu.used_bytes / _MIB:.0f} of {gpu.total_bytes / _MIB:.0f} MiB"
        for gpu in gpus
        if gpu.total_bytes and gpu.used_bytes and gpu.used_bytes / gpu.total_bytes > _BUSY
    ]
    if not used:
        return []
    return [
        Finding(
            WARNING,
            "driver",
            f"memory in use by others: GPU {', '.join(used)}",
            "End what `nvidia-smi` lists, or leave those GPUs out with CUDA_VISIBLE_DEVICES.",
        )
    ]


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

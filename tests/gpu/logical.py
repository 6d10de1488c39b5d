"""Into how many logical GPUs is the only GPU of a machine cut? Numbers alone."""

from __future__ import annotations

LOGICAL_MB = 2048
"""Of each logical GPU: fixed, as TensorFlow wants it."""
_OTHERS_MB = 2048
"""For what lies beside them: the context, cuDNN, who else uses the GPU for its screen."""
MOST = 8
"""As many replicas as the contract is tried with elsewhere."""


def count_logical(total_bytes: int | None) -> int:
    """As many as fit, two at least.

    Args:
        total_bytes: Memory of the GPU; None where the driver does not tell.
    """
    if total_bytes is None:
        return 2
    return max(2, min(MOST, (total_bytes // 2**20 - _OTHERS_MB) // LOGICAL_MB))


def count_processes(total_bytes: int | None, num_logical: int, cores: int) -> int:
    """How many processes of so many logical GPUs find room on one GPU, with two cores each.

    Args:
        total_bytes: Memory of the GPU; None where the driver does not tell.
        num_logical: Of each process.
        cores: Of the machine.
    """
    if total_bytes is None:
        return 1
    each = num_logical * LOGICAL_MB + _OTHERS_MB
    return max(1, min(cores // 2, total_bytes // 2**20 // each))


def memory_growth(num_gpus: int) -> dict[str, str]:
    """What TensorFlow is told of the memory of GPUs: a single one is cut into parts of a fixed size, which do not grow.

    It refuses both for one GPU ("Cannot set memory growth on device when virtual devices configured"). Whole GPUs take
    what they need, as other processes want theirs.

    Args:
        num_gpus: That are seen.
    """
    return {"TF_FORCE_GPU_ALLOW_GROWTH": "false" if num_gpus == 1 else "true"}

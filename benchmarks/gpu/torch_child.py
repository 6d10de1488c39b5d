"""PyTorch's DistributedDataParallel, a process for each device, as its guides teach; the first of them answers.

It speaks as `child` does: one JSON line per request, one for each answer. It imports neither TensorFlow nor Keras, and
runs in an environment of its own, since both bring libraries of CUDA.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed, nn

from benchmarks.gpu import torch_models
from benchmarks.gpu.plan import GPTS, PER_REPLICA_BATCH
from benchmarks.loop_clock import clocked
from tfscale.launch.ports import free_addresses

_TIMEOUT = datetime.timedelta(seconds=600)
_RANK, _ADDRESS, _REQUEST = "BENCHMARK_RANK", "BENCHMARK_ADDRESS", "BENCHMARK_REQUEST"
_HALVES = {"mixed_float16": torch.float16, "mixed_bfloat16": torch.bfloat16}


def main() -> None:
    """Serves until the parent is gone; the other ranks serve the first."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    rank = int(os.environ.get(_RANK, "0"))
    text = os.environ.get(_REQUEST) or sys.stdin.readline()
    request = json.loads(text)
    num_ranks = request["num_cpus"] or torch.cuda.device_count()
    if not num_ranks:
        sys.exit("PyTorch sees no GPU: its CUDA may be newer than the driver.")
    address = os.environ.get(_ADDRESS) or free_addresses(1)[0]
    if rank == 0:
        # They are of this process's group, which is ended as a whole.
        for other in range(1, num_ranks):
            environ = {**os.environ, _RANK: str(other), _ADDRESS: address, _REQUEST: text}
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.gpu.torch_child"], env=environ, stdin=subprocess.DEVNULL
            )
    said, block = start(rank, num_ranks, address, **request)
    if rank == 0:
        answers.write(json.dumps(said) + "\n")
        answers.flush()
    # By the host: a GPU that waits in NCCL computes all the time, beside the other contenders.
    waiting = distributed.new_group(backend="gloo", timeout=datetime.timedelta(days=1))
    while (steps := _next_request(rank, waiting)) is not None:
        seconds, loss = block(*steps)
        peak = _greatest(torch.cuda.max_memory_allocated()) if torch.cuda.is_initialized() else None
        if rank == 0:
            answers.write(json.dumps({"seconds": seconds, "loss": loss, "peak_bytes": peak}) + "\n")
            answers.flush()
    distributed.destroy_process_group()


def _next_request(rank: int, waiting: Any) -> tuple[int, int] | None:
    """What the parent asks of the first rank, on every rank; None at the end."""
    told: list[Any] = [None]
    if rank == 0 and (line := sys.stdin.readline()):
        request = json.loads(line)
        told = [(request["steps_per_epoch"], request["epochs"])]
    distributed.broadcast_object_list(told, src=0, group=waiting, device=torch.device("cpu"))
    return told[0]


def _greatest(number: int) -> int:
    told = torch.tensor(number, device="cuda")
    distributed.all_reduce(told, distributed.ReduceOp.MAX)
    return int(told.item())


def start(
    rank: int, num_ranks: int, address: str, *, contender: str, model: str, size: str, policy: str, num_cpus: int
) -> tuple[dict[str, Any], Callable[[int, int], tuple[float, float]]]:
    """Makes the first step; arguments and result as those of `child.start`, and of every rank.

    The floating-point operations of an item are not told: the models are those of Keras.
    """
    del contender
    device = torch.device("cpu" if num_cpus else f"cuda:{rank}")
    if not num_cpus:
        torch.cuda.set_device(device)
    _set_precision()
    distributed.init_process_group(
        "gloo" if num_cpus else "nccl",
        init_method=f"tcp://{address}",
        rank=rank,
        world_size=num_ranks,
        timeout=_TIMEOUT,
    )
    torch.manual_seed(0)
    layout = torch.channels_last if model == "resnet50" and not num_cpus else torch.contiguous_format
    built = torch_models.build(model, size).to(device, memory_format=layout)
    began_s = time.perf_counter()
    batch = PER_REPLICA_BATCH[model, size]
    epoch = make_epoch(built, torch_models.data(model, size, batch, rank), device, policy, layout)
    epoch(1)
    items = batch * num_ranks * (GPTS[size].length if model == "gpt" else 1)
    said = {
        "num_replicas": num_ranks,
        "items_per_step": items,
        "first_step_s": time.perf_counter() - began_s,
        "versions": {"torch": torch.__version__},
    }
    return said, clocked(epoch)


def _set_precision() -> None:
    """As TensorFlow has it: TF32 for products of float32 where the GPU has it, and the fastest convolution."""
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True


def make_epoch(
    model: nn.Module, batch: tuple[Any, Any], device: torch.device, policy: str, layout: torch.memory_format
) -> Callable[[int], float]:
    """Makes a loop of steps -> the mean of their losses, over all ranks.

    Args:
        model: On its device.
        batch: In the host's memory, from where it goes to the device in every step.
        device: Of this rank.
        policy: Of Keras's mixed precision.
        layout: Of images.
    """
    parallel = nn.parallel.DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=1e-3, momentum=0.9)
    scaler = torch.amp.GradScaler(device.type, enabled=policy == "mixed_float16")
    half = _HALVES.get(policy)
    loss_of = nn.CrossEntropyLoss()
    x, y = batch
    if x.ndim == 4:
        x = x.contiguous(memory_format=layout)
    if device.type == "cuda":
        x, y = x.pin_memory(), y.pin_memory()

    def epoch(steps: int) -> float:
        total = torch.zeros((), device=device)
        for _ in range(steps):
            rows, labels = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device.type, dtype=half) if half is not None else contextlib.nullcontext():
                loss = loss_of(parallel(rows), labels)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            total += loss.detach()
        distributed.all_reduce(total)
        # Waits for the device.
        return total.item() / steps / distributed.get_world_size()

    return epoch


if __name__ == "__main__":
    main()

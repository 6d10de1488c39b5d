"""PyTorch's DistributedDataParallel on gloo: the same models, batches and optimizer, as its guides teach.

Gradients travel in buckets while the backward pass goes on. A convolution's data are NCHW, PyTorch's own order.
"""

from __future__ import annotations

import datetime
import json
import os

import torch
from torch import nn

from benchmarks.contenders import LEARNING_RATE, MOMENTUM, PER_REPLICA_BATCH, Contender
from benchmarks.loop_clock import clocked

_NUM_EXAMPLES, _NUM_CLASSES, _SIDE = 2048, 10, 28
_TIMEOUT = datetime.timedelta(seconds=120)


def make_block(contender: Contender, model_name: str) -> object:
    """Builds the loop, ready to train: (steps per epoch, epochs) -> seconds of the epochs, last loss."""
    rank = join()
    if contender.one_core_each:
        torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(build(model_name))
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    loss_of = nn.CrossEntropyLoss()
    x = torch.randn(_NUM_EXAMPLES, 1, _SIDE, _SIDE)[rank :: contender.num_workers]
    y = torch.randint(_NUM_CLASSES, (_NUM_EXAMPLES,))[rank :: contender.num_workers]
    batches = list(zip(x.split(PER_REPLICA_BATCH), y.split(PER_REPLICA_BATCH), strict=True))

    def epoch(steps: int) -> float:
        total, correct = torch.zeros(()), torch.zeros((), dtype=torch.int64)
        for step in range(steps):
            rows, labels = batches[step % len(batches)]
            optimizer.zero_grad()
            logits = model(rows)
            loss = loss_of(logits, labels)
            loss.backward()
            optimizer.step()
            total += loss.detach()
            correct += (logits.detach().argmax(dim=1) == labels).sum()
        correct.item()
        return float(total / steps)

    return clocked(epoch)


def join() -> int:
    """Joins the workers that TF_CONFIG names; returns the rank. TensorFlow does not run here: its port is free."""
    config = json.loads(os.environ["TF_CONFIG"])
    workers, rank = config["cluster"]["worker"], config["task"]["index"]
    host, port = workers[0].rsplit(":", 1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://{host}:{port}", rank=rank, world_size=len(workers), timeout=_TIMEOUT
    )
    return rank


def build(name: str) -> nn.Module:
    """As `models.build`."""
    if name == "mlp":
        return nn.Sequential(
            *(nn.Flatten(), nn.Linear(_SIDE * _SIDE, 512), nn.ReLU()),
            *(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, _NUM_CLASSES)),
        )
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(64 * 12 * 12, 128), nn.ReLU(), nn.Linear(128, _NUM_CLASSES)),
    )

"""Run in a fresh process: the part of the doctor that needs TensorFlow, beside a worker that is gone too early."""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any
from unittest import mock

import tensorflow as tf

from tfscale.doctor import tensorflow_child
from tfscale.doctor.all_reduce_check import SIZES


def report_beside_one_that_left(folder: str) -> list[dict[str, Any]]:
    """What is written where another worker leaves while the last number is on its way."""

    left = [*SIZES]

    def time(_: Any, size: int) -> dict[str, Any]:
        if not left:
            raise tf.errors.UnknownError(None, None, "Collective ops is aborted by: Socket closed")
        left.remove(size)
        return {"num_bytes": 4 * size, "seconds": 0.1, "is_right": True}

    file = Path(folder) / "report"
    strategy = types.SimpleNamespace(num_replicas_in_sync=2)
    with (
        mock.patch.object(tensorflow_child, "_time", time),
        mock.patch("tfscale.training.strategy.make_strategy", return_value=strategy),
    ):
        tensorflow_child.main(file, 10.0)
    return [json.loads(line) for line in file.read_text().splitlines()]

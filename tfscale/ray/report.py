"""What does Ray hear of a `fit`, and what does `fit` hear of Ray?"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray.train

from tfscale.recovery.carrying import SaveWatcher, pack, unpack
from tfscale.recovery.location import RemotePath

_log = logging.getLogger(__name__)

_UPLOAD = "upload"
# One worker is asked before every step, several about once a second.
_ASK_EVERY_S = 1.0


class Report(SaveWatcher):
    """Tells Ray the logs of each epoch, and gives it what `Recovery` saves.

    Put it into the callbacks of `fit` on all workers, wherever `Recovery` (`dp.callbacks(directory)`) is or is not.

    After each epoch Ray gets its logs and `epoch`, the number of epochs that have ended. After each save of `Recovery`
    in a directory of the host it gets the newest state as Ray's checkpoint, with the logs of the last epoch and
    `steps`. Training waits for that, so that what Ray has can always be gone on with. When Ray starts the workers
    again and the chief is on another host, the newest state comes back from there.

    When Ray says that a host will be taken away, all save at the next step, once, and go on.

    Example:
        >>> import tfscale.ray
        >>> report = tfscale.ray.Report()  # model.fit(..., callbacks=[report, *dp.callbacks("runs/a")])

    Reference:
        https://docs.ray.io/en/latest/train/user-guides/checkpoints.html
    """

    def __init__(self) -> None:
        super().__init__()
        self._reported: dict[str, float] = {}
        self._asked_s = float("-inf")
        self._warned_of: set[str] = set()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Reports the logs."""
        numbers = {name: float(value) for name, value in (logs or {}).items() if np.ndim(value) == 0}
        self._reported = {**numbers, "epoch": epoch + 1}
        ray.train.report(self._reported)

    def bring_back(self, directory: Path | RemotePath) -> None:
        """Puts Ray's checkpoint into the directory, where that is newer than what is there."""
        kept = ray.train.get_checkpoint()
        if kept is None or isinstance(directory, RemotePath):
            return
        with kept.as_directory() as there:
            if unpack(Path(there), directory):
                _log.info("the newest state comes from Ray's checkpoint %s.", kept.path)

    def wants_save(self) -> bool:
        """Whether Ray has announced the end of a host, for the first time."""
        now_s = time.monotonic()
        if ray.train.get_context().get_world_size() == 1 and now_s - self._asked_s < _ASK_EVERY_S:
            return False
        self._asked_s = now_s
        info = ray.train.get_preemption_info()
        new = set(info.preempted_node_ids if info else ()) - self._warned_of
        self._warned_of |= new
        if new:
            _log.warning("Ray takes %d host(s) of this job away: the state is saved at the next step.", len(new))
        return bool(new)

    def on_save(self, directory: Path | RemotePath | None, steps: int) -> None:
        """Reports the newest state."""
        metrics = {"epoch": 0, **self._reported, "steps": steps}
        if not isinstance(directory, Path):
            # All workers report equally often; a store needs no second place.
            ray.train.report(metrics)
            return
        upload = directory / _UPLOAD
        pack(directory, upload)
        ray.train.report(
            metrics,
            checkpoint=ray.train.Checkpoint.from_directory(str(upload)),
            delete_local_checkpoint_after_upload=True,
        )

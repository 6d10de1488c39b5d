"""What runs on a real Ray, each in a process of its own: `python -m tests.engines.ray_jobs NAME FOLDER`."""

from __future__ import annotations

import functools
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import keras
import ray
import ray.train

import tfscale
import tfscale.ray
from tests.engines import jobs
from tfscale.launch.process_group import process_group

WAITS_S = 400.0


class Noting(tfscale.ray.Report):
    """Notes besides what is told."""

    def __init__(self, out: str):
        super().__init__()
        self._notes = pathlib.Path(out) / f"notes-{ray.train.get_context().get_world_rank()}.jsonl"

    def on_save(self, directory: Any, steps: int) -> None:
        super().on_save(directory, steps)
        jobs.note(self._notes, "saved", step=steps)


class Pace(keras.callbacks.Callback):
    """Lets nothing depend on how fast nodes come and go: workers wait for what comes next."""

    def __init__(self, out: str, workers: int):
        super().__init__()
        self._out, self._workers = out, workers

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del batch, logs
        step = int(self.model.optimizer.iterations.numpy())
        if self._workers == 1 and step == 13 and "announced" not in jobs.told(self._out):
            # Until Ray ends this group for a larger one.
            time.sleep(WAITS_S)
        elif self._workers == 2:
            time.sleep(0.4)
            if step == 14:
                wait_until(lambda: "announced" in jobs.told(self._out))
            elif step == 19:
                time.sleep(WAITS_S)


def worker(config: dict[str, Any]) -> None:
    """Trains in the folder; each of Ray's nodes has a directory of its own, as hosts have."""
    node = ray.get_runtime_context().get_node_id()
    extra = [Noting(config["out"])] if config.get("report", True) else []
    if "kill" in config:
        extra.append(jobs.kill_at(config["out"], *config["kill"]))
    if config.get("paced"):
        extra.append(Pace(config["out"], ray.train.get_context().get_world_size()))
    if config.get("waits"):
        # What another Ray of the same machine left is found again.
        node = "host"
        extra.append(Wait(config["out"]))
    directory = f"{config['out']}/{node}/recovery"
    keys = ("epochs", "every_steps", "step_s")
    jobs.train(config["out"], directory=directory, extra=extra, **{key: config[key] for key in keys if key in config})


def make_trainer(config: dict[str, Any], *, num_workers: Any, failures: int = 0, **scaling: Any) -> tfscale.ray.Trainer:
    return tfscale.ray.Trainer(
        worker,
        train_loop_config=config,
        scaling_config=ray.train.ScalingConfig(num_workers=num_workers, **scaling),
        run_config=ray.train.RunConfig(
            name="run",
            storage_path=f"{config['out']}/storage",
            failure_config=ray.train.FailureConfig(max_failures=failures),
        ),
    )


def pool(folder: str) -> None:
    """Requests of trials: two that leave a file, one that fails, one that is killed."""
    from tfscale.trials.ray_pool import RayPool

    ray.init(address="local", num_cpus=2, include_dashboard=False)
    left = pathlib.Path(folder, "left")
    left.mkdir(parents=True)
    runner = RayPool(program="tests.engines.ray_trial")
    began = []

    def request(name: str, how: str) -> dict[str, Any]:
        began.append(name)
        return {"name": name, "how": how, "folder": str(left)}

    kinds = {"a": "ends", "b": "fails", "c": "killed", "d": "ends"}
    requests = [(name, functools.partial(request, name, how)) for name, how in kinds.items()]
    found = {}
    for name, ending, log in runner.run(requests):
        found[name] = [ending.succeeded, ending.statuses, log]
        # No more are begun than have room.
        assert len(began) - len(found) < 2
    runner.close()
    # It was this process that has joined the cluster.
    assert ray.is_initialized()
    files = {path.name: path.read_text() for path in left.iterdir()}
    jobs.tell(folder, "pool", {"found": found, "files": files, "at a time": runner.at_a_time})


def local(folder: str) -> None:
    """Two workers on this machine: too few CPUs; one is killed, and Ray begins again; one is killed for good."""
    ray.init(address="local", num_cpus=2, include_dashboard=False)
    try:
        make_trainer({"out": folder}, num_workers=3).fit()
    except tfscale.LaunchError as error:
        jobs.tell(folder, "too few CPUs", str(error))
    # The second save is at step 5.
    killed = {"out": f"{folder}/killed", "kill": (1, 17), "step_s": 0.05}
    result = make_trainer(killed, num_workers=2, failures=1).fit()
    jobs.tell(folder, "killed", {"metrics": result.metrics, "has checkpoint": result.checkpoint is not None})
    gone = {"out": f"{folder}/gone", "kill": (1, 17), "step_s": 0.05}
    try:
        make_trainer(gone, num_workers=2).fit()
    except ray.train.TrainingFailedError as error:
        jobs.tell(folder, "gone", str(error))


def tensorflow_trainer(folder: str) -> None:
    """Ray's own trainer for TensorFlow, which fails with Keras 3 and a plain strategy (ray#47464)."""
    from ray.train.tensorflow import TensorflowTrainer

    ray.init(address="local", num_cpus=2, include_dashboard=False)
    config = {"out": f"{folder}/tensorflow", "report": False}
    run_config = ray.train.RunConfig(name="run", storage_path=f"{config['out']}/storage")
    scaling = ray.train.ScalingConfig(num_workers=2)
    TensorflowTrainer(worker, train_loop_config=config, scaling_config=scaling, run_config=run_config).fit()


def elastic(folder: str) -> None:
    """A second node comes in the midst of a run, is announced to go, and is killed."""
    config = {"out": folder, "every_steps": 10, "paced": True}
    ray.init(address="local", num_cpus=1, include_dashboard=False)
    address = ray.get_runtime_context().gcs_address
    threading.Thread(target=_come_and_go, args=(address, folder), daemon=True).start()
    result = make_trainer(config, num_workers=(1, 2), failures=3, elastic_resize_monitor_interval_s=2).fit()
    jobs.tell(folder, "elastic", {"metrics": result.metrics})


def waiting(folder: str) -> None:
    """One worker, which waits in step 12 the first time, until somebody presses Ctrl-C."""
    ray.init(address="local", num_cpus=1, include_dashboard=False)
    make_trainer({"out": folder, "waits": True}, num_workers=1).fit()


class Wait(keras.callbacks.Callback):
    """Waits in step 12, once."""

    def __init__(self, out: str):
        super().__init__()
        self._out = out

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del batch, logs
        if int(self.model.optimizer.iterations.numpy()) == 12 and jobs.once(self._out, "waited"):
            time.sleep(WAITS_S)


def _come_and_go(address: str, folder: str) -> None:
    notes = functools.partial(jobs.read_notes, folder)
    wait_until(lambda: any(note.get("step") == 13 for note in notes()))
    before = {node["NodeID"] for node in ray.nodes()}
    command = [sys.executable, "-m", "ray.scripts.scripts"]
    start = ["start", "--address", address, "--num-cpus", "1", "--block"]
    try:
        with process_group([*command, *start]):
            wait_until(lambda: any(note.get("step") == 14 for note in notes()))
            [node] = {each["NodeID"] for each in ray.nodes()} - before
            drain = ["drain-node", "--address", address, "--node-id", node, "--deadline-remaining-seconds", "15"]
            drain += ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "spot"]
            subprocess.run([*command, *drain], check=True, timeout=WAITS_S)
            jobs.tell(folder, "announced", time.time())
            wait_until(lambda: any(note.get("step") == 19 for note in notes()))
    finally:
        # `ray start` has named this cluster as the one of the machine.
        note = pathlib.Path("/tmp/ray/ray_current_cluster")
        if note.exists() and note.read_text() == address:
            note.unlink()


def wait_until(happened: Callable[[], bool]) -> None:
    """Returns when it has happened, or after so long that what comes then tells of it."""
    deadline_s = time.monotonic() + WAITS_S
    while not happened() and time.monotonic() < deadline_s:
        time.sleep(0.2)


if __name__ == "__main__":
    jobs_by_name = {
        "pool": pool,
        "local": local,
        "tensorflow": tensorflow_trainer,
        "elastic": elastic,
        "waiting": waiting,
    }
    jobs_by_name[sys.argv[1]](sys.argv[2])

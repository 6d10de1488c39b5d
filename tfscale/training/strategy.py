"""Which strategy runs the replicas of this process?"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tfscale.cluster import ClusterSpec, resolve_cluster
from tfscale.cluster.connecting import connecting
from tfscale.cluster.deadline import read_timeout_s
from tfscale.cluster.own_gpus import own_gpus
from tfscale.cluster.preflight import gather_facts, meet
from tfscale.cluster.preflight.facts import GPUS
from tfscale.cluster.secret import read_secret
from tfscale.cluster.tf_config import EvaluatorError
from tfscale.errors import CommunicationError, DeviceError
from tfscale.exact.numbers_of_loops import refuse_parts_beside_others
from tfscale.framework.canary import check_releases
from tfscale.framework.collectives import has_tensorflow_started
from tfscale.framework.replicas import Answers, answer_for, runs_without_merge_call, update_without_merge_call
from tfscale.gradients.network import Network, choose_network
from tfscale.gradients.optimizers import answer_all_reduce
from tfscale.gradients.reads import read_in_step
from tfscale.gradients.scope_checks import refuse_loop_inside_scope, refuse_optimizer_outside
from tfscale.recovery.termination import end_first_process_at_once
from tfscale.replicas.all_reduce import set_communication_options
from tfscale.replicas.communication import choose_communication, choose_devices, measures_link
from tfscale.replicas.failures import explaining
from tfscale.replicas.link import describe_link, measure_link
from tfscale.replicas.made import made_under
from tfscale.replicas.one_trace import run_once_for_all
from tfscale.replicas.outside import entering_scope
from tfscale.replicas.packs import Packing, choose_packing
from tfscale.replicas.replica_count import told
from tfscale.replicas.whole_numbers import assign_whole
from tfscale.replicas.xla import refuse_updates_inside_xla
from tfscale.training.check.kept_elsewhere import refuse_kept_elsewhere
from tfscale.training.check.loop_numbers import refuse_numbers_apart
from tfscale.training.check.loop_states import refuse_copies_apart, refuse_states_apart
from tfscale.training.check.untold import warn_of_untold
from tfscale.training.step.distribution import distribute_global_batches
from tfscale.training.step.eager_loops import rows_of_eager_loop, warn_of_numbers
from tfscale.training.step.strategy_run import run_loops

_log = logging.getLogger(__name__)
_UUID_CHARACTERS = 17


def simulate_replicas(num_replicas: int) -> None:
    """Splits this machine's CPU into logical devices, so that N replicas run on a laptop.

    Call it before TensorFlow starts, that is before the first tensor, variable or dataset.

    Args:
        num_replicas: How many logical CPU devices to make.

    Raises:
        DeviceError: When `num_replicas` is not a positive integer, or TensorFlow has started already.

    Example:
        >>> import tfscale
        >>> tfscale.simulate_replicas(0)
        Traceback (most recent call last):
        ...
        tfscale.errors.DeviceError: `num_replicas` must be a positive integer.
        Received: num_replicas=0. See docs/errors.md#deviceerror.
    """
    if isinstance(num_replicas, bool) or not isinstance(num_replicas, int) or num_replicas < 1:
        raise DeviceError(f"`num_replicas` must be a positive integer.\nReceived: num_replicas={num_replicas!r}.")
    cpus = tf.config.list_physical_devices("CPU")
    configurations = [tf.config.LogicalDeviceConfiguration() for _ in range(num_replicas)]
    try:
        tf.config.set_logical_device_configuration(cpus[0], configurations)
    except RuntimeError as error:
        started = len(tf.config.list_logical_devices("CPU"))
        if started == num_replicas:
            return
        raise DeviceError(
            "`simulate_replicas` must be called before TensorFlow starts.\n"
            f"Received: num_replicas={num_replicas}, but TensorFlow runs with {started} logical CPU(s) already. "
            "Move the call to the top of the script, before any tensor, variable, model or dataset."
        ) from error


def make_strategy(
    devices: str | int | Sequence[str] = "auto",
    *,
    cluster: ClusterSpec | None = None,
    communication: str = "auto",
    bytes_per_pack: int | None = None,
    timeout_s: float | None = None,
    network: Network | None = None,
    agree_on: Mapping[str, Any] | None = None,
) -> tf.distribute.Strategy:
    """Makes the strategy for the devices of this process and the workers of its job.

    The result is TensorFlow's own `MirroredStrategy` or `MultiWorkerMirroredStrategy`, set up so that conditional
    updates work and a global batch is split over the replicas to the row.

    Before TensorFlow's server starts, which would wait for a missing worker for ever, all workers of the job meet:
    each must reach all others, and they must agree on the list of workers, their devices, the versions of tfscale,
    TensorFlow, Keras and Python, and `agree_on`. That happens once per process. What they say is signed with the job's
    secret, `TFSCALE_SECRET`.

    Args:
        devices: `"auto"` (every GPU, else every logical CPU), a number, or device names. A job of several workers
            uses every GPU that its process sees, or one CPU.
        cluster: Who is in the job; by default `resolve_cluster()`. A process that `TF_CONFIG` makes the evaluator of
            the job ends there, with status 0.
        communication: As `Network`; and so the two that follow.
        bytes_per_pack: About how many bytes of gradients travel together.
        timeout_s: Seconds within which all workers must have met.
        network: These three in one, in their place. How gradients are compressed, or travel later, is no part of a
            strategy: give `prepare` the same network.
        agree_on: What else must be equal on all workers, by name; `DataParallel` gives its batches and its seed.

    Returns:
        A strategy; `isinstance` of TensorFlow's class holds. The same arguments give the same object.

    Raises:
        DeviceError: When devices are unknown, mixed, or cannot be chosen for a job of several workers; and for such a
            job when TensorFlow has started already.
        CommunicationError: When one of the three is none, or was given in both ways.
        ClusterError: When the environment describes a cluster by halves, this worker's port is in use, or the workers
            did not meet: the message names the worker, and what is wrong with it.
        VersionError: When tfscale was not tested with the installed Keras or TensorFlow.

    Example:
        >>> import tfscale
        >>> strategy = tfscale.make_strategy(devices=1)
        >>> strategy.num_replicas_in_sync
        1
    """
    beside = {"communication": communication, "bytes_per_pack": bytes_per_pack, "timeout_s": timeout_s}
    network = choose_network(network, **beside)
    end_first_process_at_once()
    cluster = _find_cluster() if cluster is None else cluster
    names = choose_devices(devices, _logical_devices()) if cluster.num_workers == 1 else _worker_devices(devices)
    device_types = [name.split(":")[0] for name in names]
    choice = choose_communication(
        device_types,
        num_workers=cluster.num_workers,
        platform=sys.platform,
        virtual_gpus=_has_virtual_gpus(),
        requested=network.communication,
    )
    packing = choose_packing(network.bytes_per_pack, device_type=device_types[0], num_workers=cluster.num_workers)
    key = _Key(cluster, tuple(names), network.communication, packing)
    timeout_s = read_timeout_s(network.timeout_s, os.environ)
    if key not in _MADE:
        _log.info(
            "%d worker(s) (from %s), each with %s; collectives: %s, because %s",
            cluster.num_workers,
            cluster.source,
            ", ".join(names),
            choice.implementation,
            choice.reason,
        )
        if cluster.num_workers > 1 and not _SERVING:
            _refuse_late_start()
        has_met = bool(timeout_s and cluster.num_workers > 1 and not _SERVING)
        if has_met:
            _meet(key, choice.implementation, agree_on or {}, timeout_s)
        # Who has met the others is there; without a meeting nobody knows how long they may take.
        in_time = connecting(cluster.workers, cluster.rank, timeout_s) if has_met else contextlib.nullcontext()
        with in_time:
            _MADE[key] = adopt_strategy(_new_strategy(cluster, names, _options(choice.implementation)))
        _choose_sizes(_MADE[key], key, choice.implementation)
    return _MADE[key]


def _meet(key: _Key, implementation: str, agree_on: Mapping[str, Any], timeout_s: float) -> None:
    """Waits for all workers of the job, and has them agree on what they are about to do."""
    packs = "chosen" if key.packing.bytes_per_pack is None else key.packing.bytes_per_pack
    facts = {
        "devices": f"{len(key.devices)} x {key.device_type}",
        "communication": implementation + (", chosen" if key.communication == "auto" else ""),
        "bytes_per_pack": packs,
        **agree_on,
    }
    said = {**gather_facts(sys.argv), **{name: str(value) for name, value in facts.items()}}
    if key.device_type == "GPU":
        visible = [device.name for device in tf.config.get_visible_devices("GPU")]
        # Shortened, so that those of a large host travel; 48 bits tell them apart.
        said[GPUS] = " ".join(uuid[:_UUID_CHARACTERS] for uuid in own_gpus(os.environ, visible))
    meet(key.cluster, said, timeout_s=timeout_s, secret=read_secret(os.environ, key.cluster.workers))


def _choose_sizes(strategy: tf.distribute.Strategy, key: _Key, implementation: str) -> None:
    """Decides what travels together: as the link is, where there is one to measure, else as was asked for."""
    num_workers = key.cluster.num_workers
    if key.communication != "auto" or not measures_link(key.devices, num_workers, key.packing):
        set_communication_options(strategy, _options(implementation), key.packing)
        return
    # Where NCCL runs between workers, a ring does too, and may be faster.
    several = implementation == "nccl" and num_workers > 1
    tried = {name: _options(name) for name in (("nccl", "ring") if several else (implementation,))}
    with explaining(strategy):
        measure_link(strategy, tried, key.packing, device_type=key.device_type)
    _log.info("%s", describe_link(strategy))


class _Key(NamedTuple):
    """What a strategy was made of."""

    cluster: ClusterSpec
    devices: tuple[str, ...]
    communication: str
    packing: Packing

    @property
    def device_type(self) -> str:
        """`"CPU"` or `"GPU"`."""
        return self.devices[0].split(":")[0]


# TensorFlow's collectives fail when two strategies of one process share devices.
_MADE: dict[_Key, tf.distribute.Strategy] = {}
# Strategies whose workers TensorFlow's server connects: it holds the port on which they would meet.
_SERVING: list[tf.distribute.Strategy] = []


def _find_cluster() -> ClusterSpec:
    try:
        return resolve_cluster()
    except EvaluatorError as error:
        # Managers that start an evaluator beside the workers take another status for a failed job, and start it again.
        _log.warning(
            "this process is the evaluator of its job: it has nothing to train and ends with status 0. %s", error
        )
        raise SystemExit(0) from error


def _options(implementation: str) -> Any:
    return tf.distribute.experimental.CommunicationOptions(implementation=_IMPLEMENTATIONS[implementation])


def _refuse_late_start() -> None:
    if has_tensorflow_started():
        raise DeviceError(
            "On several workers the strategy must be made before TensorFlow starts.\n"
            "Received: a process in which TensorFlow runs already: it has made a tensor, a variable or a dataset, "
            "or listed logical devices. Make `tfscale.DataParallel(...)` at the top of the "
            "script, right after the imports; data and models come after it."
        )


def check_network_of(strategy: tf.distribute.Strategy, network: Network) -> None:
    """Checks that what a network says of a strategy is what the strategy was made with.

    Args:
        strategy: Of `make_strategy`, or of the user's own.
        network: What is to be used with it.

    Raises:
        CommunicationError: When the strategy has another communication, or packs of another size.
    """
    made = next((key for key, each in _MADE.items() if each is strategy), None)
    given = network.given("communication", "bytes_per_pack", "timeout_s")
    if made is not None:
        given.pop("timeout_s", None)
        if given.get("communication") == made.communication:
            del given["communication"]
        kind, num_workers = made.device_type, made.cluster.num_workers
        if choose_packing(network.bytes_per_pack, device_type=kind, num_workers=num_workers) == made.packing:
            given.pop("bytes_per_pack", None)
    if given:
        shown = ", ".join(f"{name}={value!r}" for name, value in given.items())
        raise CommunicationError(
            "What a network says of a strategy must be what the strategy was made with.\n"
            f"Received: {shown} for a {type(strategy).__name__} that was made otherwise. Give the same network to "
            "`make_strategy`, or leave this out."
        )


def _new_strategy(cluster: ClusterSpec, names: Sequence[str], options: Any) -> tf.distribute.Strategy:
    if cluster.num_workers > 1:
        return tf.distribute.MultiWorkerMirroredStrategy(_resolver(cluster), communication_options=options)
    return tf.distribute.MirroredStrategy(names)


def adopt_strategy(strategy: Any) -> tf.distribute.Strategy:
    """Sets up a user's own strategy as `make_strategy` does; the same object comes back.

    Args:
        strategy: A `MirroredStrategy` or `MultiWorkerMirroredStrategy`.

    Raises:
        DeviceError: For any other strategy, or anything that is no strategy.
    """
    check_releases(keras.__version__, tf.__version__, keras.backend.backend())
    supported = (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy)
    if not isinstance(strategy, supported):
        raise DeviceError(
            "A strategy must be a tf.distribute.MirroredStrategy or MultiWorkerMirroredStrategy.\n"
            f"Received: {type(strategy).__name__}. `DataParallel` makes the right one where none is given."
        )
    if not runs_without_merge_call(strategy):
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            _SERVING.append(strategy)
        update_without_merge_call(strategy)
        answer_for(
            strategy,
            Answers(
                told,
                answer_all_reduce,
                made_under(strategy).note,
                lambda: explaining(strategy),
                lambda: entering_scope(strategy),
                lambda variable: refuse_updates_inside_xla(strategy, variable),
                read_in_step,
                refuse_loop_inside_scope,
                refuse_optimizer_outside,
                assign_whole,
                rows_of_eager_loop,
                functools.partial(run_once_for_all, strategy),
            ),
        )
        distribute_global_batches(strategy)
        run_loops(strategy, _look_at_loop)
    return strategy


_IMPLEMENTATIONS = {
    "none": tf.distribute.experimental.CommunicationImplementation.AUTO,
    "ring": tf.distribute.experimental.CommunicationImplementation.RING,
    "nccl": tf.distribute.experimental.CommunicationImplementation.NCCL,
}


def _look_at_loop(
    strategy: tf.distribute.Strategy, first: int | None, rows: Sequence[Sequence[Any]], results: Any
) -> None:
    if first is None:
        # It ran eagerly, and has no graph.
        if any(rows):
            refuse_copies_apart(strategy)
            warn_of_numbers(strategy, results)
        return
    refuse_kept_elsewhere(strategy, first)
    # What a variable gets may be returned, too: the variable is what has a name.
    refuse_states_apart(strategy, first, [each[0] if each else None for each in rows])
    refuse_parts_beside_others(strategy, results)
    refuse_numbers_apart(strategy, first, rows, results)
    warn_of_untold(strategy, first, results)


def _logical_devices() -> list[str]:
    return [device.name.removeprefix("/device:") for device in tf.config.list_logical_devices()]


def _worker_devices(requested: Any) -> list[str]:
    """What `MultiWorkerMirroredStrategy` takes: every visible GPU, else one CPU. It offers no choice.

    Physical devices are asked for, because listing logical ones would start TensorFlow before its cluster.
    """
    if requested != "auto":
        raise DeviceError(
            "With several workers every replica device of the process is used; `devices` cannot choose.\n"
            f"Received: devices={requested!r}. Leave it out, and restrict a worker's GPUs with CUDA_VISIBLE_DEVICES."
        )
    gpus = tf.config.get_visible_devices("GPU")
    return [f"GPU:{index}" for index in range(len(gpus))] or ["CPU:0"]


def _has_virtual_gpus() -> bool:
    configurations = [tf.config.get_logical_device_configuration(gpu) for gpu in tf.config.get_visible_devices("GPU")]
    return any(configuration and len(configuration) > 1 for configuration in configurations)


def _resolver(cluster: ClusterSpec) -> tf.distribute.cluster_resolver.ClusterResolver:
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(cluster.workers)}),
        task_type="worker",
        task_id=cluster.rank,
        num_accelerators={"GPU": len(tf.config.get_visible_devices("GPU"))},
        rpc_layer="grpc",
    )

"""The part of the doctor that needs TensorFlow, in a process of its own: it may be absent, broken, or hang.

    python -m tfscale.doctor.tensorflow_child FILE SECONDS

Each line of FILE is a JSON object; together they are the report, as far as it came.
"""

import contextlib
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from tfscale.cluster import ClusterSpec, resolve_cluster
from tfscale.cluster.preflight.ports import find_holders
from tfscale.doctor.all_reduce_check import SIZES, sum_of, value_of

_WARM_UP = 2
_REPEATS = 7
_LEAVE_S = 0.5


def main(file: Path, timeout_s: float) -> None:
    """Writes the report."""
    with file.open("a") as lines:

        def tell(**facts: Any) -> None:
            lines.write(json.dumps(facts) + "\n")
            lines.flush()

        try:
            tell(stage="import")
            _import(tell)
            tell(stage="meet")
            _reduce(tell, resolve_cluster(), timeout_s)
        except BaseException as error:
            tell(error=str(error) or type(error).__name__)
            raise


def _import(tell: Any) -> None:
    start_s = time.perf_counter()
    import keras
    import tensorflow as tf

    build = tf.sysconfig.get_build_info()
    tell(
        tensorflow=tf.__version__,
        keras=keras.__version__,
        backend=keras.backend.backend(),
        cuda=build.get("cuda_version") if build.get("is_cuda_build") else None,
        gpus=[device.name for device in tf.config.list_physical_devices("GPU")],
        import_s=time.perf_counter() - start_s,
    )


def _reduce(tell: Any, cluster: ClusterSpec, timeout_s: float) -> None:
    """Adds known numbers over all replicas, where there are several."""
    import tensorflow as tf

    from tfscale.replicas.communication import choose_communication
    from tfscale.training.strategy import make_strategy

    num_gpus = len(tf.config.list_physical_devices("GPU"))
    if cluster.num_workers == 1 and num_gpus < 2:
        return
    kinds = ["GPU"] * num_gpus or ["CPU"]
    start_s = time.perf_counter()
    strategy = make_strategy(cluster=cluster, timeout_s=timeout_s)
    tell(
        meet_s=time.perf_counter() - start_s,
        stage="all-reduce",
        listening=_own_addresses(int(cluster.workers[cluster.rank].rpartition(":")[2])),
        num_replicas=strategy.num_replicas_in_sync,
        communication=choose_communication(
            kinds, num_workers=cluster.num_workers, platform=sys.platform
        ).implementation,
    )
    tell(timings=[_time(strategy, size) for size in SIZES])
    # Nobody leaves before all have written theirs: TensorFlow ends a worker whose chief is gone. Whoever has got this
    # number may be gone before it has reached all others.
    with contextlib.suppress(tf.errors.OpError):
        _time(strategy, 1)
    time.sleep(_LEAVE_S if cluster.is_chief else 0)


def _own_addresses(port: int) -> list[str]:
    """Returns on which addresses TensorFlow's server listens, in this very process."""
    return [holder.address for holder in find_holders(port) if holder.pid == os.getpid()]


def _time(strategy: Any, size: int) -> dict[str, Any]:
    import numpy as np
    import tensorflow as tf

    from tfscale.replicas.all_reduce import all_reduce_sum, replica_id

    places = np.arange(size)
    numbers = tf.constant(value_of(places, 0), tf.float32)  # type: ignore[arg-type]

    @tf.function(autograph=False)
    def add() -> Any:
        return strategy.run(lambda: all_reduce_sum([numbers * (replica_id() + 1)])[0])

    times = []
    for _ in range(_WARM_UP + _REPEATS):
        start_s = time.perf_counter()
        found = [each.numpy() for each in strategy.experimental_local_results(add())]
        times.append(time.perf_counter() - start_s)
    expected = sum_of(places, strategy.num_replicas_in_sync)  # type: ignore[arg-type]
    is_right = all(bool(np.array_equal(each, expected)) for each in found)
    return {"num_bytes": 4 * size, "seconds": statistics.median(times[_WARM_UP:]), "is_right": is_right}


if __name__ == "__main__":
    _file, _timeout_s = sys.argv[1:]
    # They differ between the workers, which would be told to people.
    del sys.argv[1:]
    main(Path(_file), float(_timeout_s))
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: what TensorFlow's threads do at the end must not change the status.
    os._exit(0)

"""Two workers of which one shares its core with another program: steps per second by equal shares and by measured ones.

python -m benchmarks.input_data.uneven_workers ROUNDS, with TF_CONFIG. Every worker runs on one core of its own, so that
there have to be two; on that of worker 1 two loops run that do nothing: TensorFlow has several threads, which take more
of a core than one loop leaves.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time

STEPS, BATCH, SIDE, LOOPS = 20, 128, 32, 2


def main(num_rounds: int) -> None:
    """Prints one JSON object."""
    rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    core = sorted(os.sched_getaffinity(0))[rank]
    # Before TensorFlow is loaded, which has as many threads as cores; the loops inherit it.
    os.sched_setaffinity(0, {core})
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(LOOPS if rank == 1 else 0)]
    try:
        print(json.dumps({"rank": rank, **_train(num_rounds)}), flush=True)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _train(num_rounds: int) -> dict[str, object]:
    import keras
    import numpy as np

    import tfscale

    dp = tfscale.DataParallel(global_batch=BATCH, seed=1)
    random = np.random.default_rng(0)
    x = random.normal(size=(STEPS * BATCH, SIDE, SIDE, 3)).astype("float32")
    y = random.integers(0, 10, len(x))
    layers = keras.layers
    with dp.scope():
        model = dp.prepare(
            keras.Sequential(
                [
                    keras.Input((SIDE, SIDE, 3)),
                    layers.Conv2D(32, 3, activation="relu"),
                    layers.Conv2D(64, 3, strides=2, activation="relu"),
                    layers.GlobalAveragePooling2D(),
                    layers.Dense(10),
                ]
            )
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.01), loss)
    contenders = {"equal": dp.dataset((x, y)), "measured": dp.dataset((x, y), worker_load="auto")}
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for round_number in range(num_rounds + 1):
        for name, data in contenders.items():
            start_s = time.perf_counter()
            model.fit(data, epochs=1, verbose=0)
            # The first round makes the graphs, and measures.
            if round_number:
                seconds[name].append(time.perf_counter() - start_s)
    ratios = [equal / measured for equal, measured in zip(seconds["equal"], seconds["measured"], strict=True)]
    return {
        "shares": contenders["measured"].worker_load,
        "steps_per_s": {name: STEPS / statistics.median(each) for name, each in seconds.items()},
        "ratios": ratios,
    }


if __name__ == "__main__":
    main(int(sys.argv[1]))

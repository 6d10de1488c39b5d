"""The same run on one device, two, three, and on two workers: the same bits.

    python examples/same_run_anywhere.py

Each run is a process of its own on logical CPU devices; its digest is of all weights, the optimizer's state and the
logs after two epochs on scikit-learn's digits. On GPUs leave `simulate_replicas` out.
"""

import hashlib
import re
import subprocess
import sys

LOGICAL = 6


def train(devices: int) -> str:
    """Trains on so many devices of this process, or as a worker; returns the digest."""
    import keras
    import numpy as np
    from sklearn.datasets import load_digits

    import tfscale

    tfscale.simulate_replicas(devices)
    dp = tfscale.DataParallel(global_batch=96, logical_replicas=LOGICAL, batch_norm="local", seed=1, deterministic=True)
    digits = load_digits()
    images = (digits.images[..., np.newaxis] / 16).astype("float32")
    with dp.scope():
        layers = [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(8, 3, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(10),
        ]
        model = dp.prepare(keras.Sequential(layers))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.AdamW(0.01), loss, metrics=["accuracy"])
    data = dp.dataset((images, digits.target), shuffle=True)
    history = model.fit(data, epochs=2, verbose=0).history
    arrays = [*model.get_weights(), *(np.asarray(each) for each in model.optimizer.variables), *history.values()]
    return hashlib.sha256(b"".join(np.asarray(each).tobytes() for each in arrays)).hexdigest()[:16]


def main() -> None:
    """Starts the runs, one after the other, and prints their digests."""
    if len(sys.argv) > 1:
        print(f"digest: {train(int(sys.argv[1]))}")
        return
    own = [sys.executable, __file__]
    runs = {f"{devices} device{'s' * (devices > 1)}": [*own, str(devices)] for devices in (1, 2, 3)}
    runs["2 workers"] = [*own[:1], "-m", "tfscale", "launch", "--workers", "2", __file__, "1"]
    digests = {}
    for name, command in runs.items():
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
        digests[name] = sorted(set(re.findall(r"digest: (\w+)", ended.stdout)))
        print(f"{name:10} {' '.join(digests[name])}", flush=True)
    if len({tuple(each) for each in digests.values()}) != 1:
        sys.exit("The runs are not the same.")
    print("The same bits everywhere.")


if __name__ == "__main__":
    main()

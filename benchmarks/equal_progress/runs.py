"""All training runs on one number of replicas, in one process.

python -m benchmarks.equal_progress.runs NUM_REPLICAS SEEDS EPOCHS PATH
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import keras

import tfscale
from benchmarks.equal_progress import published, recipes


def main(num_replicas: int, num_seeds: int, epochs: int, path: Path) -> None:
    """Runs everything and writes one JSON object per line."""
    tfscale.simulate_replicas(num_replicas)
    with path.open("w") as file:
        for name, make_optimizer in recipes.RECIPES.items():
            for scaled in (True, False) if num_replicas > 1 else (True,):
                for seed in range(num_seeds):
                    batch = recipes.PER_REPLICA_BATCH
                    row = _train(make_optimizer, batch, seed, scaled=scaled, epochs=epochs)
                    found = {"recipe": name, "num_replicas": num_replicas, "scaled": scaled, "seed": seed, **row}
                    file.write(json.dumps(found) + "\n")
                    file.flush()
        if num_replicas <= 2:
            _publish(file, num_replicas, num_seeds)


def _publish(file: TextIO, num_replicas: int, num_seeds: int) -> None:
    for scaled in (True, False) if num_replicas > 1 else (True,):
        for seed in range(num_seeds):
            row = _train(
                lambda: keras.optimizers.SGD(published.RATE),
                published.PER_REPLICA_BATCH,
                seed,
                scaled=scaled,
                epochs=published.EPOCHS,
                warmup_epochs=0,
            )
            found = {"recipe": published.PUBLISHED, "num_replicas": num_replicas, "scaled": scaled, "seed": seed, **row}
            file.write(json.dumps(found) + "\n")


def _train(
    make_optimizer: Callable[[], Any],
    per_replica_batch: int,
    seed: int,
    *,
    scaled: bool,
    epochs: int,
    warmup_epochs: Any = "auto",
) -> dict[str, Any]:
    """One run: test accuracy at its end, and the test loss after every epoch."""
    keras.backend.clear_session()
    digits = recipes.load(seed)
    strategy = tfscale.make_strategy()
    batch = per_replica_batch * strategy.num_replicas_in_sync
    dp = tfscale.DataParallel(
        global_batch=batch,
        # Left alone, the recipe is taken for one that was tuned for the batch it gets.
        reference_batch=per_replica_batch if scaled else batch,
        examples_per_epoch=recipes.NUM_TRAIN,
        warmup_epochs=warmup_epochs,
        strategy=strategy,
        seed=seed,
    )
    with dp.scope():
        model = dp.prepare(recipes.build_model())
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(dp.optimizer(make_optimizer()), loss, metrics=["accuracy"], steps_per_execution=8)
    # The seed mixes the examples alike for every batch: runs of one seed differ by what is compared, not by order.
    train = dp.dataset(digits.train, shuffle=True)
    history = model.fit(train, epochs=epochs, validation_data=digits.test, verbose=0).history
    examples = [recipes.NUM_TRAIN * (epoch + 1) for epoch in range(epochs)]
    return {"accuracy": history["val_accuracy"][-1], "loss": history["val_loss"], "examples": examples}


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), Path(sys.argv[4]))

"""All training runs on one number of replicas, in one process.

python -m benchmarks.equal_progress.runs NUM_REPLICAS SEEDS EPOCHS ONLY PATH
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


def main(num_replicas: int, num_seeds: int, epochs: int, only: str, path: Path) -> None:
    """Runs everything whose name begins with `only`, and writes one JSON object per line."""
    tfscale.simulate_replicas(num_replicas)
    with path.open("w") as file:
        for scaled in (True, False) if num_replicas > 1 else (True,):
            kind = {"num_replicas": num_replicas, "scaled": scaled}
            for name, make_optimizer in recipes.RECIPES.items():
                if not name.startswith(only):
                    continue
                trainer = Trainer(make_optimizer, recipes.PER_REPLICA_BATCH, scaled=scaled)
                _write(file, {"recipe": name, **kind}, trainer, num_seeds, epochs)
            if num_replicas <= 2 and published.PUBLISHED.startswith(only):
                batch = published.PER_REPLICA_BATCH
                trainer = Trainer(_published_optimizer, batch, scaled=scaled, warmup_epochs=0)
                _write(file, {"recipe": published.PUBLISHED, **kind}, trainer, num_seeds, published.EPOCHS)


def _published_optimizer() -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(published.RATE)


def _write(file: TextIO, kind: dict[str, Any], trainer: Trainer, num_seeds: int, epochs: int) -> None:
    for seed in range(num_seeds):
        file.write(json.dumps({**kind, "seed": seed, **trainer.train(seed, epochs)}) + "\n")
        file.flush()


class Trainer:
    """Trains one recipe on the replicas of this process, from one seed after the other.

    The model is compiled once: tracing its step for eight replicas takes longer than a run.
    """

    def __init__(
        self, make_optimizer: Callable[[], Any], per_replica_batch: int, *, scaled: bool, warmup_epochs: Any = "auto"
    ):
        keras.backend.clear_session()
        self._strategy = tfscale.make_strategy()
        self._batch = per_replica_batch * self._strategy.num_replicas_in_sync
        dp = tfscale.DataParallel(
            global_batch=self._batch,
            recipe=tfscale.Recipe(
                # Left alone, the recipe is taken for one that was tuned for the batch it gets.
                reference_batch=per_replica_batch if scaled else self._batch,
                warmup_epochs=warmup_epochs,
                examples_per_epoch=recipes.NUM_TRAIN,
            ),
            devices=self._strategy,
        )
        with dp.scope():
            self._model = dp.prepare(recipes.build_model())
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            self._model.compile(dp.optimizer(make_optimizer()), loss, metrics=["accuracy"], steps_per_execution=8)
            self._model.optimizer.build(self._model.trainable_variables)
        self._untrained = [keras.ops.convert_to_numpy(each) for each in self._model.optimizer.variables]

    def train(self, seed: int, epochs: int) -> dict[str, Any]:
        """One run: test accuracy at its end, and the test loss after every epoch."""
        digits = recipes.load(seed)
        # The seed mixes the examples alike for every batch: runs of one seed differ by what is compared, not by order.
        dp = tfscale.DataParallel(global_batch=self._batch, devices=self._strategy, seed=seed)
        self._model.set_weights(recipes.build_model().get_weights())
        for variable, value in zip(self._model.optimizer.variables, self._untrained, strict=True):
            variable.assign(value)
        train = dp.dataset(digits.train, shuffle=True)
        history = self._model.fit(train, epochs=epochs, validation_data=digits.test, verbose=0).history
        examples = [recipes.NUM_TRAIN * (epoch + 1) for epoch in range(epochs)]
        return {"accuracy": history["val_accuracy"][-1], "loss": history["val_loss"], "examples": examples}


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), sys.argv[4], Path(sys.argv[5]))

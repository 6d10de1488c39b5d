"""Programs that keep in Python what cannot be that of one replica, or that change it too late."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

import tfscale
from tests.training.check.cases_step_check import Messages
from tests.training.contract_cases_anywhere import FEWER, OwnStep
from tests.training.models import sgd

BATCH = FEWER["batch_size"]


class NotesLosses(OwnStep):
    """Each replica notes that of its own rows, which counts in the next step or does not."""

    def __init__(self, counts: bool) -> None:
        super().__init__()
        self.noted: list[float] = []
        self.last = 1.0
        self.counts = counts

    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        loss = tf.reduce_mean(tf.square(y_pred - y))
        self.noted.append(float(loss))
        if self.counts:
            loss, self.last = loss * self.last, float(loss)
        return loss


class BranchesLate(keras.Model):
    """Comes to a layer when its optimizer was built."""

    def __init__(self) -> None:
        super().__init__()
        self.out, self.more, self.is_late = keras.layers.Dense(2), keras.layers.Dense(2), False

    def build(self, input_shape: Any) -> None:
        self.out.build(input_shape)

    def call(self, inputs: Any) -> Any:
        return self.out(inputs) + (self.more(inputs) if self.is_late else 0.0)


def refused() -> dict[str, str]:
    """What is said of each."""
    tfscale.simulate_replicas(2)
    dp = tfscale.DataParallel(global_batch=BATCH, seed=1)
    said = {}

    def fit(name: str, model: keras.Model) -> None:
        try:
            model.fit(**FEWER, epochs=1, verbose=0, shuffle=False)
            said[name] = "no error"
        except tfscale.TfscaleError as error:
            said[name] = f"{type(error).__name__}: {error}"

    with dp.scope():
        notes, counts, branches = (dp.prepare(m) for m in (NotesLosses(False), NotesLosses(True), BranchesLate()))
        notes.compile(sgd(), run_eagerly=True)
        counts.compile(sgd(), run_eagerly=True)
        branches.compile(sgd(), "mse", run_eagerly=True)
    warnings = Messages()
    fit("a list of own losses", notes)
    said["warning"] = "\n".join(warnings.kept)
    said["noted"] = str(len(notes.noted))
    fit("an own loss that counts", counts)
    said["noted before an error"] = str((counts.noted, counts.last))
    fit("the branch is not taken", branches)
    branches.is_late = True
    fit("the branch is taken", branches)
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((8,)), keras.layers.Dense(3), keras.layers.Dense(2)]))
        model.compile(sgd(), "mse")
    fit("not frozen", model)
    model.layers[0].trainable = False
    fit("frozen, as it was compiled", dp.prepare(model))
    try:
        dp.prepare(model, check="always")
    except tfscale.TfscaleError as error:
        said["frozen, other choices"] = f"{type(error).__name__}: {error}"
    with dp.scope():
        model.compile(sgd(), "mse")
    fit("frozen, compiled again", dp.prepare(model, check="always"))
    return said

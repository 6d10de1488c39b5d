"""The rows of `ScalingReport`, in memory, in the CSV file and for TensorBoard."""

import csv
import logging

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfscale import BatchPlan, DataParallel
from tfscale.callbacks import NoiseScale, NonFiniteWatch, Recovery, ReplicaScaling, ScalingReport

PLAN = BatchPlan(global_batch=8, num_replicas=2, reference_batch=2)


class Clock:
    """Half a second later at every look."""

    now_s = 0.0

    def __call__(self):
        self.now_s += 0.5
        return self.now_s


def report_of_run(optimizer=None, *, examples=24, epochs=2, callbacks=(), compiled=None, fit=None, **arguments):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(optimizer or keras.optimizers.SGD(0.01, momentum=0.9), "mse", **(compiled or {}))
    report = ScalingReport(PLAN, clock=Clock(), **arguments)
    x = np.ones((examples, 1))
    model.fit(x, x, 8, epochs, 0, callbacks=[*callbacks, report], **(fit or {}))
    return report.rows


def test_rows():
    first, second = report_of_run(examples_per_epoch=24)
    # Three steps an epoch, each the look at its end; the first of all steps is not timed.
    assert first == {
        "epoch": 0,
        "steps": 3,
        "reference_steps": 12.0,
        "epochs_equivalent": 1.0,
        "learning_rate": pytest.approx(0.01),
        "momentum": 0.9,
        "global_batch": 8,
        "examples_per_s": 16.0,
        "step_time_s": 0.5,
    }
    assert (second["steps"], second["reference_steps"], second["epochs_equivalent"]) == (6, 24.0, 2.0)
    # Between the begin of the first step and the end of the third are three half seconds.
    assert (second["examples_per_s"], second["step_time_s"]) == (16.0, 0.5)


def test_an_epoch_of_one_step_has_no_time_at_first():
    first, second = report_of_run(examples=8)
    assert first["step_time_s"] is first["examples_per_s"] is first["epochs_equivalent"] is None
    assert second["step_time_s"] == 0.5


@pytest.mark.parametrize(
    ("optimizer", "momentum"),
    [
        (keras.optimizers.SGD, 0.0),
        (keras.optimizers.Adam, 0.9),
        (keras.optimizers.Adagrad, None),
        (lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(momentum=0.5)), 0.5),
    ],
)
def test_momentum(optimizer, momentum):
    assert report_of_run(optimizer(), epochs=1)[0]["momentum"] == momentum


def test_rate_is_that_of_the_steps():
    schedule = keras.optimizers.schedules.PolynomialDecay(0.1, 12, 0.0)
    assert [row["learning_rate"] for row in report_of_run(keras.optimizers.SGD(schedule))] == pytest.approx(
        [0.075, 0.05]
    )
    for order in (1, -1):
        callbacks = [ReplicaScaling(4), keras.callbacks.LearningRateScheduler(lambda epoch: 0.01 / 2**epoch)][::order]
        rows = report_of_run(callbacks=callbacks)
        assert [row["learning_rate"] for row in rows] == pytest.approx([0.04, 0.02])


def test_accumulation():
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    [row] = report_of_run(optimizer, examples=32, epochs=1, examples_per_epoch=32)
    assert (row["steps"], row["epochs_equivalent"], row["step_time_s"]) == (2, 1.0, 1.0)


def test_several_steps_per_execution():
    [row] = report_of_run(examples=64, epochs=1, compiled={"steps_per_execution": 4})
    # Two executions of four steps; the first is not timed.
    assert (row["steps"], row["step_time_s"]) == (8, 0.125)


def test_files(tmp_path):
    rows = report_of_run(directory=tmp_path, examples_per_epoch=24)
    # A run that is resumed goes on in the file.
    report_of_run(directory=tmp_path, epochs=3, fit={"initial_epoch": 2})
    with (tmp_path / "scaling.csv").open() as file:
        written = list(csv.DictReader(file))
    assert [row["epoch"] for row in written] == ["0", "1", "2"]
    assert {name: float(value) for name, value in written[1].items()} == pytest.approx(rows[1])
    assert written[2]["epochs_equivalent"] == ""
    [*events] = (tmp_path / "scaling").glob("events*")
    seen = {
        (event.step, value.tag): float(tf.make_ndarray(value.tensor))
        for path in events
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
        for event in [tf.compat.v1.Event.FromString(record)]
        for value in event.summary.value
    }
    assert seen[1, "scaling/reference_steps"] == 24
    assert seen[0, "scaling/learning_rate"] == pytest.approx(0.01)
    assert (2, "scaling/epochs_equivalent") not in seen
    # A new run starts a new file.
    report_of_run(directory=tmp_path, epochs=1)
    assert len((tmp_path / "scaling.csv").read_text().splitlines()) == 2


def test_log(caplog):
    with caplog.at_level(logging.INFO, "tfscale"):
        report_of_run(epochs=1)
    [record] = [each for each in caplog.records if "scaling_report" in each.name]
    assert "learning_rate 0.01" in record.getMessage()
    assert "epochs_equivalent" not in record.getMessage()


def test_sensible_set(tmp_path):
    dp = DataParallel(global_batch=8, devices=1)
    for arguments in ((), (None,)):
        assert [type(each) for each in dp.callbacks(*arguments)] == [ScalingReport, NonFiniteWatch]
    for directory in (tmp_path, str(tmp_path)):
        assert [type(each) for each in dp.callbacks(directory)] == [ScalingReport, Recovery, NonFiniteWatch, NoiseScale]
    assert len(dp.callbacks(directory=tmp_path)) == 4

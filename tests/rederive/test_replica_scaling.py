"""`ReplicaScaling` alone and with callbacks that change the rate; rates and velocities against numpy."""

import keras
import numpy as np
import pytest

from tests.processes import run_case
from tests.training.contract import relative_difference
from tests.training.models import ScheduleWithoutConfig
from tfscale import DataParallel, Recipe, ScalingError
from tfscale.callbacks import ReplicaScaling


def rates_of_steps(*, callbacks=(), epochs=1, batches=4, optimizer=None, **fit):
    """The rate that each step used: the gradient of every step is 1, so the weight moves by it."""
    model = one_weight(optimizer or keras.optimizers.SGD(0.1))
    watch = Watch()
    model.fit(np.ones((batches, 1)), np.zeros(batches), 1, epochs, 0, callbacks=[*callbacks, watch], **fit)
    return -np.diff(watch.weights), model


def one_weight(optimizer):
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input((1,)), layer])
    model.compile(optimizer, loss=output)
    return model


@keras.saving.register_keras_serializable("tests")
def output(y, y_pred):
    return y_pred[:, 0]


class Watch(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.weights = [float(self.model.get_weights()[0][0, 0])]

    def on_train_batch_end(self, batch, logs=None):
        self.weights.append(float(self.model.get_weights()[0][0, 0]))


def warmed(steps, ratio=4, factor=4, warmup=24):
    return [1 + (factor - 1) * min(1, step * ratio / warmup) for step in steps]


def test_ratio_of_one_does_nothing():
    rates, _ = rates_of_steps(callbacks=[ReplicaScaling(1, warmup_steps=100)])
    np.testing.assert_allclose(rates, 0.1, rtol=1e-5)


def test_warms_up_per_step_over_epochs():
    rates, model = rates_of_steps(callbacks=[ReplicaScaling(4, warmup_steps=24)], epochs=2)
    np.testing.assert_allclose(rates, 0.1 * np.array(warmed(range(8))), rtol=1e-5)
    # Between two batches, and in a file, it is the recipe's.
    assert float(model.optimizer.learning_rate) == np.float32(0.1)


@pytest.mark.parametrize(
    ("optimizer", "rule", "factor"),
    [
        ("SGD", "auto", 4),
        ("SGD", "sqrt", 2),
        ("SGD", "none", 1),
        ("SGD", 3.0, 3),
        ("RMSprop", "auto", 2),
        ("Adagrad", "auto", 1),
        ("Adam", "linear", 4),
    ],
)
def test_rule(optimizer, rule, factor):
    watch = RateInBatch()
    make = getattr(keras.optimizers, optimizer)
    rates_of_steps(callbacks=[ReplicaScaling(4, rule=rule), watch], optimizer=make(0.01))
    np.testing.assert_allclose(watch.rates, 0.01 * factor, rtol=1e-5)


class RateInBatch(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.rates = []

    def on_train_batch_begin(self, batch, logs=None):
        self.rates.append(float(self.model.optimizer.learning_rate))


def test_inside_a_loss_scale_optimizer():
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1))
    rates, _ = rates_of_steps(callbacks=[ReplicaScaling(4, warmup_steps=24)], optimizer=optimizer)
    np.testing.assert_allclose(rates, 0.1 * np.array(warmed(range(4))), rtol=1e-4)


@pytest.mark.parametrize("first", [True, False])
def test_reduce_lr_on_plateau(first):
    # The loss falls for ever, so its maximum never improves: from epoch 1 on, each epoch halves the rate, down to 0.03.
    plateau = keras.callbacks.ReduceLROnPlateau("loss", 0.5, patience=1, mode="max", min_lr=0.03)
    scaling = ReplicaScaling(4, warmup_steps=24)
    callbacks = [scaling, plateau] if first else [plateau, scaling]
    rates, model = rates_of_steps(callbacks=callbacks, epochs=4, batches=3)
    recipe = np.repeat([0.1, 0.1, 0.05, 0.03], 3)
    np.testing.assert_allclose(rates, recipe * np.array(warmed(range(12))), rtol=1e-4)
    assert model.history.history["learning_rate"] == pytest.approx([0.1, 0.1, 0.05, 0.03])


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("schedule", [lambda epoch: 0.1 / 2**epoch, lambda epoch, rate: rate / 2 if epoch else rate])
def test_learning_rate_scheduler(schedule, first):
    scheduler, scaling = keras.callbacks.LearningRateScheduler(schedule), ReplicaScaling(4, warmup_steps=24)
    callbacks = [scaling, scheduler] if first else [scheduler, scaling]
    rates, _ = rates_of_steps(callbacks=callbacks, epochs=3, batches=3)
    recipe = np.repeat([0.1, 0.05, 0.025], 3)
    np.testing.assert_allclose(rates, recipe * np.array(warmed(range(9))), rtol=1e-4)


def test_velocity_is_corrected_on_every_change():
    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch: [0.1, 0.01][epoch])
    moved, _ = rates_of_steps(
        callbacks=[ReplicaScaling(4, warmup_steps=8), scheduler],
        optimizer=keras.optimizers.SGD(0.1, momentum=0.9),
        epochs=2,
    )
    rates = np.repeat([0.1, 0.01], 4) * np.array(warmed(range(8), warmup=8))
    # A velocity without the rate in it: u = momentum u + g, w -= rate u.
    velocities = [(1 - 0.9 ** (step + 1)) / (1 - 0.9) for step in range(8)]
    np.testing.assert_allclose(moved, rates * velocities, rtol=1e-4)


def test_goes_on_where_a_file_ends(tmp_path):
    scaling = {"batch_ratio": 4, "warmup_steps": 24}
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    whole, _ = rates_of_steps(callbacks=[ReplicaScaling(**scaling)], optimizer=optimizer, epochs=3)
    _, model = rates_of_steps(callbacks=[ReplicaScaling(**scaling)], optimizer=keras.optimizers.SGD(0.1, momentum=0.9))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    watch = Watch()
    fit = {"epochs": 3, "initial_epoch": 1, "batch_size": 1, "verbose": 0}
    loaded.fit(np.ones((4, 1)), np.zeros(4), callbacks=[ReplicaScaling(**scaling), watch], **fit)
    np.testing.assert_allclose(-np.diff(watch.weights), whole[4:], rtol=1e-4)


@pytest.mark.parametrize("scaling", [{}, {"steps_per_epoch": 4}])
def test_goes_on_at_an_initial_epoch_without_state(scaling):
    rates, _ = rates_of_steps(callbacks=[ReplicaScaling(4, warmup_steps=24, **scaling)], epochs=3, initial_epoch=1)
    np.testing.assert_allclose(rates, 0.1 * np.array(warmed(range(4, 12))), rtol=1e-4)


def generate():
    for _ in range(8):
        yield np.ones((1, 1)), np.zeros(1)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_initial_epoch_of_unknown_length():
    model = one_weight(keras.optimizers.SGD(0.1))
    fit = {"epochs": 2, "initial_epoch": 1, "verbose": 0, "shuffle": False}
    with pytest.raises(ScalingError, match=r"steps before must be known(.|\n)*steps_per_epoch="):
        model.fit(generate(), callbacks=[ReplicaScaling(4, warmup_steps=24)], **fit)
    model.fit(generate(), callbacks=[ReplicaScaling(4, warmup_steps=24, steps_per_epoch=8)], **fit)


def test_counts_updates_and_not_micro_steps():
    watch = RateInBatch()
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    rates_of_steps(callbacks=[ReplicaScaling(4, warmup_steps=24), watch], optimizer=optimizer, epochs=2)
    np.testing.assert_allclose(watch.rates, 0.1 * np.array(warmed([0, 0, 1, 1, 2, 2, 3, 3])), rtol=1e-5)


def test_a_run_after_an_interrupted_one():
    model = one_weight(keras.optimizers.SGD(0.1))
    scaling = ReplicaScaling(4)

    class Interrupt(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(np.ones((2, 1)), np.zeros(2), verbose=0, callbacks=[scaling, Interrupt()])
    watch = Watch()
    model.fit(np.ones((2, 1)), np.zeros(2), verbose=0, callbacks=[scaling, watch])
    np.testing.assert_allclose(-np.diff(watch.weights), 0.4, rtol=1e-5)


def test_on_replicas():
    one, two = (run_case("tests.training.callbacks.cases_callbacks:scaled_run", args=(count,)) for count in (1, 2))
    for array, expected in zip(two["weights"], one["weights"], strict=True):
        # As in the contract: of an array's largest value. A weight may pass through zero, and rounds as its row does.
        assert relative_difference(array, expected) < 1e-5
    for copies in two["velocities"]:
        np.testing.assert_array_equal(copies[0], copies[1])
    assert two["rates"] == one["rates"]


@pytest.mark.parametrize("schedule", [keras.optimizers.schedules.CosineDecay(0.1, 10), ScheduleWithoutConfig()])
def test_refuses_a_schedule(schedule):
    optimizer = keras.optimizers.SGD(schedule)
    with pytest.raises(ScalingError, match=r"plain number(.|\n)*Received: (.|\n)*`ReplicaSchedule`"):
        rates_of_steps(callbacks=[ReplicaScaling(4)], optimizer=optimizer)


def test_refuses_an_optimizer_that_was_rederived():
    dp = DataParallel(global_batch=1, recipe=Recipe(4, warmup_epochs=0), devices=1)
    for make in (keras.optimizers.SGD, lambda rate: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(rate))):
        with dp.scope():
            model = dp.prepare(one_weight(dp.optimizer(make(0.1))))
        with pytest.raises(ScalingError, match=r"only once(.|\n)*Leave out one of"):
            model.fit(np.ones((4, 1)), np.zeros(4), verbose=0, callbacks=[ReplicaScaling(4)])


@pytest.mark.parametrize("arguments", [{"batch_ratio": 0}, {"batch_ratio": float("nan")}, {"rule": "cubic"}])
def test_bad_input(arguments):
    with pytest.raises(ScalingError, match="Received"):
        ReplicaScaling(**{"batch_ratio": 4, **arguments})


@pytest.mark.parametrize("warmup_steps", [-1, "auto", float("inf")])
def test_bad_warmup(warmup_steps):
    with pytest.raises(ScalingError, match="`warmup_steps` must be"):
        ReplicaScaling(4, warmup_steps=warmup_steps)

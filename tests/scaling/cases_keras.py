"""What Keras itself says about its optimizers and schedules, in a process that may load it."""

import inspect

import keras

from tfscale.scaling import scale_hyperparameters
from tfscale.scaling.schedule_config import copy_config

NOT_OPTIMIZERS = {"Optimizer", "OptimizerMap"}  # the abstract base, and a dict of optimizers


def describe():
    """Returns (default config by optimizer, step arguments of schedules, configs that came back from Keras)."""
    classes = {
        name: value
        for name, value in vars(keras.optimizers).items()
        if inspect.isclass(value) and name not in NOT_OPTIMIZERS
    }
    configs = {name: copy_config(make(name, cls).get_config()) for name, cls in classes.items()}
    schedules = {
        name: sorted(inspect.signature(value).parameters)
        for name, value in vars(keras.optimizers.schedules).items()
        if inspect.isclass(value) and name != "LearningRateSchedule"
    }
    return configs, schedules, {name: round_trip(name, cls) for name, cls in classes.items()}


def make(name, cls):
    if name == "LossScaleOptimizer":
        return cls(keras.optimizers.Adam())
    if name == "MultiOptimizer":
        choice = keras.optimizers.OptimizerMap(keras.optimizers.SGD(), {"encoder/.*": keras.optimizers.Adam()})
        return cls(choice)
    return cls()


def round_trip(name, cls):
    """Returns (scaled config, config of the optimizer that Keras made of it), both plain."""
    if name == "MultiOptimizer":
        optimizer = make(name, cls)
    else:
        arguments = {"use_ema": True, "ema_overwrite_frequency": 100}
        inner = keras.optimizers.Adam if name == "LossScaleOptimizer" else cls
        optimizer = inner(**arguments)
        optimizer = cls(optimizer) if name == "LossScaleOptimizer" else optimizer
    config, knobs = scale_hyperparameters(keras.optimizers.serialize(optimizer), 8)
    assert all(knob.is_understood for knob in knobs)
    # keras.optimizers.deserialize does not know Lamb (Keras 3.15).
    # It also puts objects into the config that it is given.
    made = keras.saving.deserialize_keras_object(copy_config(config)).get_config()
    return config["config"], copy_config(made)

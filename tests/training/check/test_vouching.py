"""Whose code takes part in a step; one device, no strategy."""

import keras
import numpy as np
import pytest

from tests.training.models import PenaltyWithoutConfig
from tfscale.errors import ModelError
from tfscale.training.check.vouching import check_mode, foreign_parts, is_checked

layers = keras.layers


class Own(keras.layers.Layer):
    def call(self, inputs):
        return inputs


class OwnStep(keras.Sequential):
    def train_step(self, data):
        return super().train_step(data)


class OwnOptimizer(keras.optimizers.SGD):
    pass


def _compiled(model=None, **arguments):
    model = model or keras.Sequential([keras.Input((2,)), layers.Dense(1)])
    model.compile(**{"optimizer": "sgd", "loss": "mse", **arguments})
    model.evaluate(np.ones((1, 2)), np.ones((1, 1)), verbose=0)
    return model


def _mixing():
    inputs = keras.Input((2,))
    return keras.Model(inputs, inputs - keras.ops.mean(inputs, axis=0))


def _attending(**axes):
    inputs = keras.Input((2,))
    rows = layers.Reshape((1, 2))(inputs)
    attended = layers.MultiHeadAttention(1, 2, **axes)(rows, rows)
    return keras.Model(inputs, layers.Dense(1)(layers.Flatten()(attended)))


def _vectors(layer):
    inputs = keras.Input((2,))
    return keras.Model(inputs, layers.Dense(1)(layer([inputs, layers.Dense(2)(inputs)])))


def _along(axis):
    inputs = keras.Input((2,))
    return keras.Model(inputs, layers.Dense(1)(layers.Flatten()(layers.Softmax(axis)(inputs))))


def _sequences():
    inputs = keras.Input((2,))
    rows = layers.Reshape((2, 1))(inputs)
    return keras.Model(inputs, layers.Dense(1)(layers.Flatten()(layers.Attention()([rows, rows]))))


def _without_a_column(*more):
    return keras.Sequential([keras.Input((2,)), layers.Dense(1), layers.Reshape(()), *more])


def _counting(output_mode):
    inputs = keras.Input((2,))
    codes = layers.Reshape(())(layers.Dense(1)(inputs))
    model = keras.Model(inputs, [layers.Dense(1)(inputs), layers.Discretization([0.0], output_mode=output_mode)(codes)])
    model.compile("sgd", ["mse", None])
    return model


def _sparse(**arguments):
    model = keras.Sequential([keras.Input((2,), sparse=True), layers.Dense(1)])
    model.compile("sgd", "mse", **arguments)
    return model


def own_function(y_true, y_pred):
    return keras.ops.mean(keras.ops.abs(y_true - y_pred), axis=-1)


@pytest.mark.parametrize(
    ("build", "number"),
    [
        (lambda: _compiled(metrics=["mae", keras.metrics.AUC()]), 0),
        (lambda: _compiled(keras.Sequential([keras.Input((2,)), layers.BatchNormalization(), layers.Dense(1)])), 0),
        (lambda: _compiled(keras.Sequential([keras.Input((2,)), Own(), layers.Dense(1)])), 1),
        (lambda: _compiled(keras.Sequential([keras.Input((2,)), layers.Lambda(lambda x: x), layers.Dense(1)])), 1),
        (lambda: _compiled(keras.Sequential([keras.Input((2,)), layers.Dense(1, activity_regularizer="l2")])), 1),
        (lambda: _sparse(), 0),
        (lambda: _sparse(run_eagerly=True), 1),
        (lambda: _compiled(OwnStep([keras.Input((2,)), layers.Dense(1)])), 1),
        (lambda: _compiled(loss=own_function), 1),
        (lambda: _compiled(metrics=[own_function]), 1),
        (lambda: _compiled(metrics=[keras.metrics.PearsonCorrelation(axis=None)]), 1),
        (lambda: _compiled(optimizer=OwnOptimizer()), 1),
        (lambda: _compiled(keras.Sequential([keras.Input((2,)), layers.Softmax(axis=0), layers.Dense(1)])), 1),
        (lambda: _compiled(_attending(attention_axes=(0,))), 1),
        (lambda: _compiled(_attending()), 0),
        (lambda: _compiled(_vectors(layers.Attention())), 1),
        (lambda: _compiled(_vectors(layers.AdditiveAttention())), 1),
        (lambda: _compiled(_sequences()), 0),
        (lambda: _counting("multi_hot"), 1),
        (lambda: _counting("one_hot"), 0),
        (lambda: _compiled(_along(-2)), 1),
        (lambda: _compiled(_along([-1, -2])), 1),
        (lambda: _compiled(_along(-1)), 0),
        (lambda: _compiled(keras.Sequential([keras.Input((2,)), layers.Reshape((2, 1)), layers.Softmax(-2)])), 0),
        (lambda: _compiled(_without_a_column(layers.Activation("softmax"))), 1),
        (lambda: _compiled(_without_a_column(layers.Softmax())), 1),
        (lambda: _compiled(_without_a_column()), 0),
        (lambda: _compiled(_without_a_column(), metrics=["mae"]), 1),
        (lambda: _compiled(_without_a_column(), metrics=[keras.metrics.AUC()]), 0),
        (lambda: _compiled(metrics=[keras.metrics.CosineSimilarity(axis=-2)]), 1),
        (
            lambda: _compiled(
                keras.Sequential([keras.Input((2,)), layers.Dense(1, kernel_regularizer=PenaltyWithoutConfig())])
            ),
            0,
        ),
        (_mixing, 1),
    ],
)
def test_foreign_parts(build, number):
    model = build()
    assert (len(foreign_parts(model)) > 0) == (number > 0)
    assert is_checked(model, "auto") == (number > 0)
    assert is_checked(model, "always")
    assert is_checked(model, "warn")
    assert not is_checked(model, "off")


@pytest.mark.parametrize("mode", ["sometimes", None, True])
def test_bad_modes(mode):
    with pytest.raises(ModelError, match="Received: check="):
        check_mode(mode)


def test_a_saved_model_is_somebody_elses_code(tmp_path):
    _mixing().export(tmp_path / "mixing", verbose=False)
    inputs = keras.Input((2,))
    model = keras.Model(inputs, layers.TFSMLayer(str(tmp_path / "mixing"), call_endpoint="serve")(inputs))
    assert foreign_parts(model) == [f"layer {model.layers[1].name!r}"]

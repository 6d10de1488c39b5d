"""A name that is gone, or takes something else, is an error, and never a hook that nobody calls."""

import keras
import pytest

from tfscale import VersionError
from tfscale.framework import fit, losses, models, optimizers
from tfscale.framework.hooks import assign, expect, own_method, read, replace


class Renamed(keras.optimizers.SGD):
    """As Keras's, were `_clip_gradients` called otherwise: nothing of the base class is found under that name."""

    _clip_gradients = None


class Rival(keras.optimizers.SGD):
    def _clip_gradients(self, grads, norm=1.0):
        return grads


def test_what_is_there_is_read_and_set():
    model = keras.Sequential()
    assign(model, "_initial_epoch", 3)
    assert read(model, "_initial_epoch") == 3


@pytest.mark.parametrize("change", [read, lambda owner, name: assign(owner, name, 1)])
def test_what_is_not_there_is_named(change):
    with pytest.raises(VersionError) as caught:
        change(keras.Sequential(), "_first_epoch")
    said = str(caught.value)
    assert "`_first_epoch` of Keras's" in said
    assert f"Received: Keras {keras.__version__}" in said
    assert "tfscale doctor" in said


def test_replacing_gives_back_the_method_of_the_class():
    optimizer = keras.optimizers.SGD()
    clip = replace(optimizer, "_clip_gradients", lambda grads: "replaced")
    assert optimizer._clip_gradients([]) == "replaced"
    assert clip([1.0]) == [1.0]
    assert own_method(optimizer, "_clip_gradients")([1.0]) == [1.0]


@pytest.mark.parametrize(
    ("name", "function", "said"),
    [
        ("_clip", lambda grads: grads, "`_clip` of Keras's `.*`, which is not there"),
        ("_clip_gradients", lambda gradients: gradients, r"takes \(grads\) and not \(gradients\)"),
        ("_clip_gradients", lambda grads, variables: grads, r"takes \(grads\) and not \(grads, variables\)"),
        ("_clip_gradients", list, "takes"),
    ],
)
def test_what_takes_something_else_is_not_replaced(name, function, said):
    optimizer = keras.optimizers.SGD()
    with pytest.raises(VersionError, match=said):
        replace(optimizer, name, function)
    assert name not in vars(optimizer)


def test_method_of_the_user_may_take_more():
    optimizer = Rival()
    replace(optimizer, "_clip_gradients", lambda grads: "replaced")
    assert optimizer._clip_gradients([]) == "replaced"


def test_class_is_expected_to_have_a_name():
    expect(keras.optimizers.SGD, "iterations", None)
    with pytest.raises(VersionError, match="which is no method"):
        expect(keras.optimizers.SGD, "iterations", ())
    with pytest.raises(VersionError, match="`rounds` of Keras's"):
        expect(keras.optimizers.SGD, "rounds", None)


def compiled():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize(
    ("hook", "owner", "name"),
    [
        (lambda owner: optimizers.hook_gradients(owner, list), Renamed, "_clip_gradients"),
        (losses.loss_entries, compiled, "_compile_loss"),
        (losses.loss_tracker, compiled, "_loss_tracker"),
        (fit.restored_epoch, compiled, "_initial_epoch"),
        (models.all_metrics, compiled, "_compile_metrics"),
        (optimizers.micro_step_counter, keras.optimizers.SGD, "_iterations"),
        (optimizers.has_plain_rate, keras.optimizers.SGD, "_learning_rate"),
    ],
)
def test_hooks_fail_closed(hook, owner, name):
    thing = owner()
    vars(thing).pop(name, None)
    with pytest.raises(VersionError, match=name):
        hook(thing)

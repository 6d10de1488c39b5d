"""A pass that changes no variable: what it assigns is read in it, but for what was assigned in a branch."""

import keras
import pytest
import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.gradients.changing_nothing import ChangingNothing


@pytest.fixture
def model():
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])


def _assign_in_branch(variable):
    def assign():
        variable.assign(tf.zeros_like(variable.value))
        return True

    tf.cond(tf.timestamp() > 0, assign, lambda: False)


def test_what_is_assigned_is_read_and_not_kept(model):
    kernel = model.layers[0].kernel

    @tf.function
    def in_a_pass():
        with ChangingNothing(model) as scope:
            kernel.assign(3.0 * tf.ones((2, 1)))
            read = tf.identity(kernel.value)
            scope.refuse_made_of_others([read])
        return read

    assert in_a_pass().numpy().tolist() == [[3.0], [3.0]]
    assert kernel.numpy().tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize("is_weight", [True, False])
def test_what_is_assigned_in_a_branch_is_read_as_before(model, is_weight):
    other = keras.Variable([[2.0], [2.0]], trainable=False)
    variable = model.layers[0].kernel if is_weight else other

    @tf.function
    def in_a_pass():
        with ChangingNothing(model) as scope:
            _assign_in_branch(variable)
            read = 2.0 * variable
            scope.refuse_made_of_others([tf.constant(1.0)])
        return read

    before = variable.numpy()
    assert in_a_pass().numpy().tolist() == (2.0 * before).tolist()
    assert variable.numpy().tolist() == before.tolist()


def test_what_the_pass_is_made_for_must_not_be_made_of_it(model):
    kernel = model.layers[0].kernel

    @tf.function
    def in_a_pass():
        with ChangingNothing(model) as scope:
            _assign_in_branch(kernel)
            scope.refuse_made_of_others([tf.reduce_sum(kernel)])

    with pytest.raises(ModelError, match=r"changes nothing\.\nReceived: a mask .* assigns in a branch"):
        in_a_pass()

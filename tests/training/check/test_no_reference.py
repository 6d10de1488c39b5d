import numpy as np
import pytest
import tensorflow as tf

from tests.processes import run_case
from tfscale.training.check.no_reference import NoReferenceError, agreeing_on_reference


@pytest.mark.parametrize(
    ("error", "takes_too_much"),
    [
        (tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[9,9]"), True),
        (MemoryError("no room"), True),
        # As an H200 said it, whose memory others had taken.
        (tf.errors.InternalError(None, None, "No blas support for stream"), True),
        (tf.errors.InternalError(None, None, "DNN library initialization failed. Look at the errors above"), True),
        (tf.errors.InternalError(None, None, "cudaSetDevice() on GPU:0 failed. Status: out of memory"), True),
        (tf.errors.InternalError(None, None, "Incompatible shapes"), False),
        (tf.errors.InvalidArgumentError(None, None, "Incompatible shapes: [4] vs. [6]"), False),
        (ValueError("out of memory of last year's holidays"), False),
    ],
)
def test_which_errors_say_that_there_is_no_room(error, takes_too_much):
    with pytest.raises(NoReferenceError) as raised, agreeing_on_reference(tf.distribute.OneDeviceStrategy("CPU:0")):
        raise error
    assert raised.value.takes_too_much == takes_too_much
    assert raised.value.__cause__ is error


def test_a_step_that_does_not_run_with_a_known_number_of_rows_is_compared_with_an_open_one():
    for own, expected in zip(*run_case("tests.training.check.cases_no_reference:trimmed_in_float64"), strict=True):
        np.testing.assert_allclose(own, expected, rtol=1e-12)

"""What does the error of a first step say that is not that of one replica?"""

import pytest

from tfscale.training.check.step_cause import describe_difference
from tfscale.training.check.step_differences import Difference

ROWS_MEET = [Difference("loss", "the loss", "loss", 0.5, 1.0, 0.5)]


@pytest.mark.parametrize("is_eager", [False, True])
def test_an_eager_step_may_be_that_of_one_replica_in_a_graph(is_eager):
    text = describe_difference(ROWS_MEET, "first step of model 'a'", 2, 8, is_eager=is_eager)
    assert "tfscale.gather_rows(x)" in text
    assert ("leave `run_eagerly=True` out" in text) is is_eager

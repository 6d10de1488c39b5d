"""The one point where training on tfscale is meant to differ from plain Keras is said by name."""

import keras
import pytest

from tfscale.gradients.optimizers import reduce_gradients_once


@pytest.mark.parametrize(
    ("arguments", "is_said"),
    [
        ({"gradient_accumulation_steps": 2, "use_ema": True}, True),
        ({"gradient_accumulation_steps": 2}, False),
        ({"use_ema": True}, False),
    ],
)
def test_averages_of_accumulated_updates_are_named(caplog, arguments, is_said):
    optimizer = keras.optimizers.SGD(0.1, name="averaged", **arguments)

    reduce_gradients_once(optimizer)
    reduce_gradients_once(optimizer)

    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(lines) == (1 if is_said else 0)
    for line in lines:
        assert "'averaged'" in line
        assert "once per update" in line
        assert "every micro-step" in line

"""What is said of a run that goes on where its bits cannot be the same."""

import pytest

from tfscale.recovery.bits import changed_bits

HERE = {"deterministic": True, "tensorflow": "2.21.0", "keras": "3.15.1", "devices": "CPU", "onednn": "default"}


@pytest.mark.parametrize(
    ("saved", "own", "expected"),
    [
        ({}, {}, []),
        ({"tensorflow": "2.20.0"}, {}, ["tensorflow: '2.20.0' when it was saved, '2.21.0' now"]),
        (
            {"keras": "3.14.1", "devices": "NVIDIA A100"},
            {},
            ["keras: '3.14.1' when it was saved, '3.15.1' now", "devices: 'NVIDIA A100' when it was saved, 'CPU' now"],
        ),
        ({}, {"deterministic": False}, ["deterministic: True when it was saved, False now"]),
        ({"deterministic": False}, {}, ["deterministic: False when it was saved, True now"]),
        ({"deterministic": False, "keras": "3.14.1"}, {"deterministic": False}, []),
    ],
)
def test_what_has_changed(saved, own, expected):
    assert changed_bits({**HERE, **saved}, {**HERE, **own}) == expected


def test_states_of_before_say_nothing():
    assert changed_bits(None, HERE) == []
    # What a later version notes besides, or an earlier one did not.
    assert changed_bits({**HERE, "more": "1"}, {**HERE, "others": "2"}) == []

"""When does XLA compile a replica's pass?"""

import types

import pytest

from tfscale.training import xla
from tfscale.training.xla import CollectiveInsideXlaError, refuse_collectives_inside_xla, would_compile


def _layers(*support):
    return [types.SimpleNamespace(supports_jit=each) for each in support]


@pytest.mark.parametrize(
    ("support", "devices", "expected"),
    [
        ((True, True), ("CPU", "GPU"), True),
        ((True, False), ("CPU", "GPU"), False),
        ((True, True), ("CPU",), False),
        ((True,), ("CPU", "CPU"), False),
        ((), ("GPU",), True),
        ((), (), False),
    ],
)
def test_auto_decides_as_on_one_device(support, devices, expected):
    assert would_compile(_layers(*support), devices) is expected


def test_collectives_are_refused_only_while_compiling():
    refuse_collectives_inside_xla()
    with xla._compiling(), pytest.raises(CollectiveInsideXlaError):
        refuse_collectives_inside_xla()
    refuse_collectives_inside_xla()

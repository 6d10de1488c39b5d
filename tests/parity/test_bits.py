"""What is said of two runs whose bytes differ; the numbers are counted by hand."""

import dataclasses

import ml_dtypes
import numpy as np
import pytest

from tfscale.parity.bits import count_arrays, find_bit_differences
from tfscale.parity.bitwise_report import BitwiseReport, BitwiseRow
from tfscale.parity.outcome import DataFacts, ModelFacts, Outcome, load_outcome, save_outcome

DATA = DataFacts(8, 2, (8,), "digest")
ONES = np.full(4, 1.1, np.float32)
NEXT = np.nextafter(ONES, np.float32(2))


def _outcome(start=ONES, logs=0.5, epoch=ONES, end=ONES, state=ONES, predicted=ONES, data=DATA):
    arrays = {
        "epoch 1: epoch logs": {"loss": np.asarray(logs)},
        "epoch 1: weights": {"kernel": epoch, "bias": ONES},
        "weights": {"kernel": end, "bias": ONES},
        "optimizer state": {"iteration": np.asarray(3), "momentum": state},
        "predict": {"output 0": predicted},
    }
    return Outcome({"kernel": start}, arrays, ModelFacts(), data)


def _first(**given):
    found = find_bit_differences(_outcome(**given), _outcome())
    return str(found[0]) if found else None


def test_equal():
    assert _first() is None
    assert count_arrays(_outcome()) == {
        "data": 1,
        "starting weights": 1,
        "epoch logs": 1,
        "weights": 4,
        "optimizer state": 2,
        "predict": 1,
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"data": dataclasses.replace(DATA, digest="other"), "start": NEXT}, "data, 'all examples': others"),
        ({"start": NEXT, "end": NEXT}, "starting weights, 'kernel': 4 of 4 elements, 1.1e-07 relative, 1 ulp at most"),
        # Keras logs Python's floats of what was float32.
        ({"logs": 0.5 + 2.0**-24, "end": NEXT}, "epoch logs after epoch 1, 'loss': 1 of 1 element, 1.2e-07 relative"),
        ({"logs": 0.1}, "epoch logs after epoch 1, 'loss': 1 of 1 element, 8.0e-01 relative"),
        ({"epoch": NEXT, "end": NEXT}, "weights after epoch 1, 'kernel': 4 of 4"),
        ({"end": NEXT, "state": NEXT}, "weights at the end, 'kernel': 4 of 4"),
        ({"state": NEXT, "predicted": NEXT}, "optimizer state at the end, 'momentum': 4 of 4"),
        ({"predicted": ONES * [1, 1, 1, 2]}, "predict, 'output 0': shape (4,), float64 instead of shape (4,), float32"),
        ({"predicted": ONES[:3]}, "predict, 'output 0': shape (3,), float32 instead of shape (4,), float32"),
        ({"predicted": np.array([1.1, 1.1, 1.1, np.nan], np.float32)}, "predict, 'output 0': 1 of 4 elements"),
        ({"end": np.stack([ONES, NEXT])}, "weights at the end, 'kernel': 4 of 4 elements, 1.1e-07 relative, 1 ulp"),
    ],
)
def test_first(given, expected):
    assert _first(**given).startswith(expected)


@pytest.mark.parametrize(
    ("array", "other", "differing", "ulps", "relative"),
    [
        (np.float32([0.0, 1.1]), np.float32([-0.0, 1.1]), 1, None, 0.0),
        (np.float32([-1e-45]), np.float32([1e-45]), 1, 2, 2.0),
        (np.float16([1.0, 2.0]), np.float16([1.0, 2.0 + 2.0**-9]), 1, 1, 2.0**-9 / (2 + 2.0**-9)),
        (np.float64([0.1, -0.1]), np.float64([np.nextafter(0.1, 1), -0.1]), 1, 1, 2.0**-56 / 0.1),
        (np.float64([-0.1]), np.float64([0.1]), 1, 2 * int(np.float64(0.1).view(np.uint64)), 2.0),
        (np.int64([7, 8]), np.int64([7, 10]), 1, None, 0.2),
        (np.array([True, False]), np.array([True, True]), 1, None, 1.0),
        (np.float32([np.inf]), np.float32([1.1]), 1, None, None),
        (np.array([b"a", b"b"]), np.array([b"a", b"c"]), 1, None, None),
    ],
)
def test_how_far(array, other, differing, ulps, relative):
    [found] = find_bit_differences(_outcome(predicted=array), _outcome(predicted=other))
    assert (found.num_elements, found.num_differing, found.ulps) == (array.size, differing, ulps)
    assert found.relative == (relative if relative is None else pytest.approx(relative, rel=1e-6))


def test_the_same_not_a_number_is_equal():
    assert _first(predicted=ONES.copy()) is None
    nan = np.float32([np.nan])
    assert find_bit_differences(_outcome(predicted=nan), _outcome(predicted=nan.copy())) == []


def test_other_arrays():
    ours = _outcome()
    ours.arrays["weights"] = {"kernel": ONES, "bias": ONES, "scale": ONES}
    [found] = find_bit_differences(ours, _outcome())
    assert str(found) == "weights at the end, 'scale': 3 arrays instead of 2"


def test_bfloat16_through_a_file(tmp_path):
    for name, value in (("a", 1.0), ("b", 1.0 + 2.0**-7)):
        (tmp_path / name).mkdir()
        save_outcome(_outcome(predicted=np.array([value], ml_dtypes.bfloat16)), tmp_path / name)
    [found] = find_bit_differences(load_outcome(tmp_path / "b"), load_outcome(tmp_path / "a"))
    # In steps of float32 it would be 65,536.
    assert (found.ulps, found.relative) == (None, 2.0**-7)


def test_table():
    [found] = find_bit_differences(_outcome(end=NEXT), _outcome())
    rows = (
        BitwiseRow("2 devices", "weights", 4, 0),
        BitwiseRow("3 devices", "epoch logs", 1, 0),
        BitwiseRow("3 devices", "weights", 4, 1, found),
    )
    report = BitwiseReport("title", rows, {"3 devices": found}, ("Cause.",), ("a note",), {"keras": "3"})
    assert str(report).splitlines() == [
        "title",
        "run        quantity    arrays  verdict  first that differs",
        "2 devices  weights          4  equal",
        "3 devices  epoch logs       1  equal",
        "           weights     1 of 4  differs  kernel",
        "Equal to the bit: 2 devices, as 1 device.",
        "Differs from 1 device: 3 devices, first in weights at the end, 'kernel': 4 of 4 elements, 1.1e-07",
        "  relative, 1 ulp at most.",
        "Cause.",
        "Note: a note",
        "Bits depend besides on what is here: keras 3.",
    ]
    assert not report.equal
    plain = report.to_dict()
    assert plain["first"]["3 devices"]["num_differing"] == 4
    assert [row["verdict"] for row in plain["rows"]] == ["equal", "equal", "differs"]

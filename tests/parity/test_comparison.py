import math

import numpy as np
import pytest

from tfscale.parity.comparison import (
    array_differences,
    arrays_without_influence,
    choose_tolerance,
    compare_outcomes,
    largest,
)
from tfscale.parity.outcome import DataFacts, ModelFacts, Outcome

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("ours", "reference", "size"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 3.0], [1.0, 4.0], 0.25),
        # Against the array's largest value, not each value's own.
        ([0.5, 4.0], [0.0, 4.0], 0.125),
        ([0.25], [0.0], 0.25),
        ([0.0], [0.0], 0.0),
        ([], [], 0.0),
        ([NAN, 1.0], [NAN, 1.0], 0.0),
        ([NAN, 1.0], [1.0, 1.0], INF),
        ([1.0, 1.0], [NAN, 1.0], INF),
        ([INF, 1.0], [INF, 1.0], 0.0),
        ([INF, 1.0], [-INF, 1.0], INF),
        ([[1.0]], [1.0, 2.0], INF),
        # A copy per replica: the one that differs most counts.
        ([[1.0, 4.0], [1.0, 3.0]], [1.0, 4.0], 0.25),
    ],
)
def test_floats(ours, reference, size):
    ours, reference = np.array(ours, np.float32), np.array(reference, np.float32)
    assert array_differences({"a": ours}, {"a": reference}, with_floor=False) == {"a": size}


@pytest.mark.parametrize(
    ("ours", "reference", "size"),
    [(3, 3, 0.0), (3, 4, INF), (True, True, 0.0), (True, False, INF), (b"a", b"a", 0.0), (b"a", b"b", INF)],
)
def test_counters_are_the_same_or_not(ours, reference, size):
    differences = array_differences({"n": np.array(ours)}, {"n": np.array(reference)}, with_floor=True)
    assert differences == {"n": size}


def test_small_arrays_are_measured_against_the_floor():
    reference = {"kernel": np.array([2.0]), "bias": np.array([1e-9]), "rate": np.array(1e6)}
    ours = {"kernel": np.array([2.0]), "bias": np.array([3e-9]), "rate": np.array(1e6)}
    sizes = array_differences(ours, reference, with_floor=True)
    # A thousandth of the kernel's 2.0; a scalar such as the learning rate sets no floor.
    assert sizes == {"kernel": 0.0, "bias": pytest.approx(2e-9 / 2e-3), "rate": 0.0}


def test_other_number_of_arrays():
    sizes = array_differences({"a": np.ones(1)}, {}, with_floor=False)
    assert sizes == {"1 arrays instead of 0": INF}


def test_largest_is_the_first_of_several():
    assert largest({"a": 0.1, "b": 0.3, "c": 0.3}) == (0.3, "b")


def _outcome(weights, metrics=1.0):
    arrays = {
        "weights": {"w": np.array(weights)},
        "optimizer state": {},
        "epoch metrics": {"loss": np.array([metrics])},
        "evaluate": {},
        "predict": {},
    }
    return Outcome({}, arrays, ModelFacts(), DataFacts(8, 2, (8,), "digest"))


def test_worst_worker_counts_and_empty_quantities_have_no_row():
    workers = [_outcome([4.0]), _outcome([3.0], metrics=1.5)]
    assert compare_outcomes(_outcome([4.0]), workers) == {
        "weights": {"w": 0.25},
        "epoch metrics": {"loss": 0.5},
    }


@pytest.mark.parametrize(
    ("run", "control", "expected"),
    [
        ({"bias": 1e-3}, {"bias": 2e-4}, {"weights": ["bias"]}),
        ({"bias": 1e-3, "kernel": 1e-6}, {"bias": 2e-4, "kernel": 0.0}, {"weights": ["bias"]}),
        # The control moves it too little for rounding.
        ({"bias": 1e-3}, {"bias": 9e-5}, {}),
        ({"bias": 1e-3}, {}, {}),
        ({"bias": 1e-6}, {"bias": 1e-6}, {}),
        ({"bias": INF}, {"bias": 1e-3}, {}),
    ],
)
def test_arrays_without_influence(run, control, expected):
    predict = {"predict": {"output": 1e-7}}
    found = arrays_without_influence({"weights": run, **predict}, {"weights": control}, 1e-5)
    assert found == expected


def test_array_has_influence_when_predictions_differ():
    run = {"weights": {"bias": 1e-3}, "predict": {"output": 1e-4}}
    assert arrays_without_influence(run, {"weights": {"bias": 1e-3}}, 1e-5) == {}


@pytest.mark.parametrize(
    ("dtypes", "tolerance"),
    [((), 1e-5), (("float64",), 1e-5), (("float16", "float32"), 1e-2), (("bfloat16",), 8e-2)],
)
def test_tolerance(dtypes, tolerance):
    assert choose_tolerance(dtypes) == tolerance

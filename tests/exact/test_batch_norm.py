import itertools

import numpy as np
import pytest

from tests.exact.cases_batch_norm import MOMENTUM, data
from tests.training.together import Failure, run_together
from tfscale import ModelError
from tfscale.exact.batch_norm import choose_batch_norm

CASES = "tests.exact.cases_batch_norm"

# Replicas and rows.
LOCAL = [(1, 10), (3, 12), (3, 10), (4, 2)]
MOMENTS = [(0, 1), (1e4, 1), (-3, 1e-2)]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    directory = str(tmp_path_factory.mktemp("batch_norm"))
    by_replicas = {n: [] for n in (1, 3, 4)}
    for num_replicas, rows in LOCAL:
        call = f"{CASES}:local_statistics", (num_replicas, rows, directory)
        by_replicas[num_replicas].append(call)
    by_replicas[3] += [(f"{CASES}:moments", (3, *numbers)) for numbers in MOMENTS]
    by_replicas[3] += [(f"{CASES}:masked_moments", (3,)), (f"{CASES}:nested_layers", ())]
    found = {}
    for calls in by_replicas.values():
        for (target, args), result in run_together(calls).items():
            numbers = tuple(arg for arg in args if arg != directory)
            found[(target.partition(":")[2], *numbers)] = result
    return found


def result_of(results, *call):
    assert not isinstance(results[call], Failure), results[call]
    return results[call]


@pytest.mark.parametrize(
    ("requested", "per_replica_batch", "reference_batch", "expected"),
    [
        ("auto", 64, 64, "local"),
        ("auto", 128, 64, "local"),
        ("auto", 63, 64, "synchronized"),
        ("auto", 63.5, 64, "synchronized"),
        ("local", 1, 64, "local"),
        ("synchronized", 64, 64, "synchronized"),
    ],
)
def test_choice(requested, per_replica_batch, reference_batch, expected):
    found = choose_batch_norm(requested, per_replica_batch=per_replica_batch, reference_batch=reference_batch)
    assert found == expected


@pytest.mark.parametrize("requested", ["global", "", None, True])
def test_unknown_choice(requested):
    with pytest.raises(ModelError, match=r"one of 'auto', 'local', 'synchronized'(.|\n)*Received"):
        choose_batch_norm(requested, per_replica_batch=1, reference_batch=1)


@pytest.mark.parametrize(("num_replicas", "rows"), LOCAL)
def test_local_statistics_are_averaged(results, num_replicas, rows):
    found = result_of(results, "local_statistics", num_replicas, rows)
    x, _ = data(rows)
    bounds = [rows * i // num_replicas for i in range(num_replicas + 1)]
    shares = [x[a:b] for a, b in itertools.pairwise(bounds) if b > a]
    sizes = [len(share) / rows for share in shares]
    means = sum(size * share.mean(axis=0) for size, share in zip(sizes, shares, strict=True))
    variances = sum(size * share.var(axis=0) for size, share in zip(sizes, shares, strict=True))
    for value in found["mean"]:
        np.testing.assert_allclose(value, (1 - MOMENTUM) * means, rtol=1e-5)
    for value in found["variance"]:
        expected = MOMENTUM + (1 - MOMENTUM) * variances
        np.testing.assert_allclose(value, expected, rtol=1e-5)
    assert all(np.all(np.isfinite(weight)) for weight in found["weights"])
    assert float(found["evaluate"]) == pytest.approx(float(found["loaded"]), rel=1e-6)


@pytest.mark.parametrize(("mean", "deviation"), MOMENTS)
def test_global_moments(results, mean, deviation):
    found = result_of(results, "moments", 3, mean, deviation)
    x = found["x"].astype("float64")
    for means, variances in zip(found["means"], found["variances"], strict=True):
        np.testing.assert_allclose(means, x.mean(axis=0), rtol=1e-6, atol=1e-6)
        # A mean m known to m * 2^-24 leaves a variance known to its square.
        np.testing.assert_allclose(variances, x.var(axis=0), rtol=1e-4)
    expected = [1, 2, 3] / np.float64(len(x)) + 2 * (x - x.mean(axis=0)) / len(x)
    # A replica's mean is rounded to float32, and so are the deviations from it.
    rounding = 8 * abs(mean) * 2.0**-24 / len(x)
    np.testing.assert_allclose(found["gradient"], expected, rtol=1e-4, atol=1e-6 + rounding)
    # Per replica: one forward, one backward.
    assert found["collectives"] == 2 * 3


def test_global_moments_with_mask(results):
    found = result_of(results, "masked_moments", 3)
    mean, variance = found["of Keras"]
    for means, variances in zip(found["means"], found["variances"], strict=True):
        np.testing.assert_allclose(means, mean, rtol=1e-12)
        np.testing.assert_allclose(variances, variance, rtol=1e-12)


def test_nested(results):
    assert result_of(results, "nested_layers") == ["in_dict", "inner", "wrapped"]

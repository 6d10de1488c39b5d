"""AdaScale: the gain, measured without bias, and what follows from it."""

import numpy as np
import pytest

from tests.gradients import cases_adascale
from tests.processes import CaseError, run_case
from tests.training.together import Failure, run_together

CASES = "tests.gradients.cases_adascale"
KINDS = ("cosine", "constant rate", "own step", "loss scale")


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return str(tmp_path_factory.mktemp("adascale"))


@pytest.fixture(scope="module")
def trained(directory):
    calls = [(f"{CASES}:train", (3, kind, directory)) for kind in KINDS]
    return dict(zip(KINDS, run_together(calls).values(), strict=True))


@pytest.fixture(scope="module")
def small():
    calls = [
        *((f"{CASES}:estimates", (shards, 4000)) for shards in SHARDS),
        (f"{CASES}:sparse_squares", ()),
        (f"{CASES}:reduced_elsewhere", ()),
        (f"{CASES}:rederive", ("one replica",)),
    ]
    return run_together(calls)


@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_paper_in_numpy(trained, kind):
    found = trained[kind]
    assert not isinstance(found, Failure), found
    expected = cases_adascale.expected(3, constant=kind == "constant rate")
    np.testing.assert_allclose(found["gains"], expected["gains"], rtol=1e-4)
    np.testing.assert_allclose(found["position"], expected["position"], rtol=1e-4)
    np.testing.assert_allclose(found["kernel"], expected["kernel"], rtol=1e-4)


def test_gain_is_between_one_and_the_ratio(trained):
    # The last batch of an epoch has 4 rows, the reference batch: there is nothing to gain.
    gains = np.array(trained["cosine"]["gains"])
    assert gains[[2, 5]] == pytest.approx(1)
    assert np.all((gains[[0, 1, 3, 4]] > 1) & (gains[[0, 1, 3, 4]] < 2.5))


def test_summary_says_what_is_measured(trained):
    assert "x gain" in trained["cosine"]["text"]
    assert "measured at every step" in trained["cosine"]["text"]


def test_report_shows_what_was_made_good(trained):
    report = trained["constant rate"]["report"]
    assert report["reference_steps"] == trained["constant rate"]["position"]
    assert report["learning_rate"] == pytest.approx(cases_adascale.RATE * trained["constant rate"]["gains"][-1])


def test_saved_and_loaded(trained, directory):
    loaded = run_case(f"{CASES}:load", args=(directory,))
    assert (loaded["class"], loaded["reference_batch"]) == ("AdaScaleSGD", cases_adascale.REFERENCE_BATCH)
    assert loaded["position"] == trained["cosine"]["position"]
    assert loaded["gain"] == trained["cosine"]["gains"][-1]


SHARDS = [(4, 4), (1, 2, 5), (3, 0, 7, 1)]


@pytest.mark.parametrize("shards", SHARDS)
def test_estimates_are_unbiased_for_unequal_shards(small, shards):
    result = small[(f"{CASES}:estimates", (shards, 4000))]
    assert not isinstance(result, Failure), result
    for column, name in enumerate(("variance", "squared_mean")):
        values = result["found"][:, column]
        standard_error = values.std(ddof=1) / np.sqrt(len(values))
        assert abs(values.mean() - result[name]) < 4 * standard_error


def test_row_that_was_looked_up_twice(small):
    sparse, dense = small[(f"{CASES}:sparse_squares", ())]
    assert sparse == dense == 36 + 64 + 9 + 16


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("Adam", "Rule 'adascale' is for SGD"),
        ("accumulation", "gradient_accumulation_steps=2"),
        ("twice", "only once"),
    ],
)
def test_refused(kind, said):
    with pytest.raises(CaseError, match=f"ScalingError(.|\n)*{said}"):
        run_case(f"{CASES}:rederive", args=(kind,))


def test_needs_two_replicas(small):
    assert "needs two of them" in small[(f"{CASES}:rederive", ("one replica",))]


def test_refuses_gradients_that_are_reduced_already(small):
    assert "reduced already" in small[(f"{CASES}:reduced_elsewhere", ())]

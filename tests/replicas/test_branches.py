"""No replica waits for ever for one that its own rows have led elsewhere, or that is in another turn of a loop."""

import pytest

from tests.processes import run_case
from tests.training.together import Failure, run_together

REFUSED = (
    "own rows",
    "own number of rows",
    "own rows inside of a variable's condition",
    "own rows, as one condition gave them",
    "own rows in a function",
    "a function in own rows' condition",
    "one of several by own rows",
    "by a loop over own rows",
    "by a loop as long as own rows",
    "a branch of Python by the rows",
    "one more of Python by the rows",
    "a loop",
    "a loop in a condition that all decide alike",
    "random numbers",
    "a metric's state",
    "an eager function's rows",
)
ALLOWED = (
    "no condition",
    "a random number of Keras",
    "a variable",
    "a number",
    "a sum of all",
    "a function",
    "the rows of all",
    "by a loop over numbers",
    "a loop without",
)


@pytest.fixture(scope="module")
def outcomes():
    return run_case("tests.replicas.cases_branches:run", args=((*REFUSED, *ALLOWED),))


@pytest.mark.parametrize("name", REFUSED)
def test_refused_before_it_runs(outcomes, name):
    if "of Python" in name:
        assert outcomes[name].startswith("ModelError: Some replicas send more often than others")
        return
    where = "loop" if name.startswith("a loop") else "condition"
    assert outcomes[name].startswith(f"ModelError: Inside of a {where} something is sent to all replicas")
    assert f"of type {'' if where == 'condition' else 'While'}" in outcomes[name]


@pytest.mark.parametrize("name", ALLOWED)
def test_what_all_decide_alike_runs(outcomes, name):
    assert outcomes[name] is None


FIT = "tests.replicas.cases_branches:fit"


@pytest.fixture(scope="module")
def fits():
    return run_together(
        [(FIT, (by, check)) for by in ("own rows", "iterations", "all rows") for check in ("auto", "off")]
    )


@pytest.mark.parametrize("check", ["auto", "off"])
def test_in_fit(fits, check):
    refused = fits[FIT, ("own rows", check)]
    assert isinstance(refused, Failure)
    assert refused.startswith("Inside of a condition something is sent")
    for by in ("iterations", "all rows"):
        losses = fits[FIT, (by, check)]
        assert not isinstance(losses, Failure), losses


@pytest.mark.parametrize("check", ["auto", "off"])
def test_in_fit_that_runs_eagerly(check):
    refused = run_case(FIT, args=("own rows", check, 3, True))
    assert isinstance(refused, Failure)
    assert refused.startswith("All replicas must send the same, in the same order")


@pytest.mark.parametrize("by", ["iterations", "all rows"])
def test_as_on_one_replica(fits, by):
    alone = run_case(FIT, args=(by, "off", 1))
    assert fits[FIT, (by, "auto")] == pytest.approx(alone, rel=1e-5)

import pytest

from tests.processes import run_case

CASE = "tests.training.call.cases_one_batch:history"


@pytest.mark.parametrize("ahead", [False, True], ids=["cut out by the step", "copied ahead, as on GPUs"])
@pytest.mark.parametrize("kind", ["dense", "sparse", "of any length"])
def test_a_batch_that_was_looked_at_is_trained_on_like_its_neighbours(kind, ahead):
    # Keras weights what it logs of each output by the rows that it knows of when it traces.
    expected, traced = run_case(CASE, args=(0, kind, False))
    assert set(traced) == {None}
    found, traced = run_case(CASE, args=(2, kind, ahead))
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name] == pytest.approx(values, rel=1e-5), name
    # Of one number of rows is what one replica would do, with which the step is compared, and nothing that trains.
    assert len([rows for rows in traced if rows is not None]) <= 1

from tests.processes import run_workers


def test_what_one_worker_still_has_of_another_model_is_not_in_the_way():
    # How soon Python frees a model is another time on each worker.
    one, other = run_workers("tests.training.check.cases_left_over:fits", 2)
    assert one == other
    assert len(one) == 2

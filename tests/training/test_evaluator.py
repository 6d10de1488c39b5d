"""Vertex AI and Kubeflow start evaluators beside the workers: theirs is no failure."""

import json

import pytest

from tests.processes import run_case

CLUSTER = {"chief": ["10.0.0.1:2222"], "worker": ["10.0.0.2:2222"]}


@pytest.mark.parametrize("others", [{}, {"environment": "cloud", "job": {}}])
def test_evaluator_ends_well(others):
    config = {"cluster": CLUSTER, "task": {"type": "evaluator", "index": 0}, **others}
    status, num_replicas, source = run_case(
        "tests.training.cases_evaluator:begin", env={"TF_CONFIG": json.dumps(config)}
    )
    assert (status, num_replicas, source) == (0, 1, "this machine")

"""Before TensorFlow's server starts: real workers, that would wait for ever without."""

import re

import pytest

from tests.processes import run_workers


@pytest.fixture(scope="module")
def workers():
    return run_workers("tests.training.cases_preflight:different_scripts", 2)


def test_worker_that_never_starts(workers):
    for absent, missed_s, *_ in workers:
        assert re.search(r"Worker 1 \(127\.0\.0\.1:\d+\) did not answer within 2 s\.", absent)
        assert missed_s < 4.0


def test_workers_that_differ(workers):
    for _, _, (batch, seed, own, secret), took_s, total in workers:
        assert "Received: global_batch: 33 on worker 1 (127.0.0.1:" in batch
        assert ", 32 on worker 0 (127.0.0.1:" in batch
        assert "Received: seed: 1 on worker 1" in seed
        assert "Received: own: 1 on worker 1" in own
        assert "has another TFSCALE_SECRET than this worker" in secret
        assert total == 2
        # Nothing of TensorFlow's was touched before, on the same ports.
        assert took_s < 20


@pytest.mark.parametrize("kind", ["tensor", "dataset"])
def test_strategy_after_the_first_tensor(kind):
    for said, took_s in run_workers("tests.training.cases_preflight:after_the_first_tensor", 2, args=(kind,)):
        assert said.startswith("On several workers the strategy must be made before TensorFlow starts.\nReceived: ")
        assert "top of the script" in said
        assert took_s < 5

"""Before TensorFlow's server starts: real workers, that would wait for ever without."""

from tests.processes import run_case, run_workers
from tfscale.launch.ports import free_addresses


def test_workers_that_differ():
    for messages, took_s, total in run_workers("tests.training.cases_preflight:different_scripts", 2):
        batch, seed, own = messages
        assert "Received: global_batch: 33 on worker 1 (127.0.0.1:" in batch
        assert ", 32 on worker 0 (127.0.0.1:" in batch
        assert "Received: seed: 1 on worker 1" in seed
        assert "Received: own: 1 on worker 1" in own
        assert total == 2
        # Nothing of TensorFlow's was touched before, on the same ports.
        assert took_s < 20


def test_worker_that_never_starts():
    addresses = free_addresses(2)
    message, took_s = run_case("tests.training.cases_preflight:missing_peer", args=(addresses, 2.0))
    assert f"Worker 1 ({addresses[1]}) did not answer within 2 s." in message
    assert took_s < 4.0

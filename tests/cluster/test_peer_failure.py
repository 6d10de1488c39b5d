import pytest

from tfscale.cluster.peer_failure import describe_peer_failure, find_blamed


@pytest.mark.parametrize("message", ["ValueError: x", "several\nlines\n", ""])
def test_blame_is_found_in_what_python_prints(message):
    lines = f"Traceback\ntfscale.errors.ClusterError: {describe_peer_failure(12, message)}\nmore".splitlines()
    assert find_blamed(lines) == 12


@pytest.mark.parametrize("text", ["", "worker 1 failed with x", "Received: worker 1 failed with x", "Received: worker"])
def test_other_output_blames_nobody(text):
    assert find_blamed(text.splitlines()) is None

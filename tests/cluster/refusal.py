"""Whether an environment is refused, in the three parts that every message has."""

import pytest

from tfscale import ClusterError, resolve_cluster


def assert_refused(environ, *parts):
    """Asserts that the message says each part, a rule or what is missing, what it received and a way out."""
    with pytest.raises(ClusterError) as caught:
        resolve_cluster(environ)
    message = str(caught.value)
    assert [part for part in parts if part not in message] == []
    stated, _, received = message.partition("\nReceived: ")
    assert stated
    # What was received, and after it a way out.
    assert ". " in received
    assert received.endswith(".")

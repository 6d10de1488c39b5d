"""What the tests of one run share: results of the contract's cases."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.training import contract_run


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, references: Path) -> Callable[..., dict]:
    """Runs cases on a number of replicas, when they are first asked for, in one process."""
    found: dict[int, dict] = {}

    def run(names: tuple[str, ...], num_replicas: int) -> dict:
        if num_replicas not in found:
            directory = tmp_path_factory.mktemp(f"contract{num_replicas}")
            found[num_replicas] = contract_run.run_on_replicas(names, num_replicas, directory, references)
        return found[num_replicas]

    return run

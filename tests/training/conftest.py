"""What the tests of one run share: plain Keras's result for each case of the contract."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def references(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all xdist workers of the run see."""
    base = tmp_path_factory.getbasetemp()
    directory = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "references"
    directory.mkdir(exist_ok=True)
    return directory

import pytest

from tests.launch.running import Launcher


@pytest.fixture
def launcher(tmp_path):
    return Launcher(tmp_path)

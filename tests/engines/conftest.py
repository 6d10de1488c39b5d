"""Whether an engine is there; `make test-engines` lets nothing skip."""

import importlib.util
import os
import shutil

import pytest

INSTALLED = {
    "ray": lambda: importlib.util.find_spec("ray") is not None,
    "slurm": lambda: all(map(shutil.which, ("slurmctld", "slurmd", "munged", "ip"))) and os.geteuid() == 0,
    "openmpi": lambda: shutil.which("mpirun.openmpi") is not None,
    "mpich": lambda: shutil.which("mpiexec.hydra") is not None,
    "namespaces": lambda: shutil.which("unshare") is not None and os.geteuid() == 0,
    "pods": lambda: all(map(shutil.which, ("unshare", "ip"))) and os.geteuid() == 0,
}


@pytest.fixture(scope="session")
def needs():
    """Skips a test whose engine is not installed, unless all have to be."""

    def check(engine):
        if not INSTALLED[engine]():
            if os.environ.get("TFSCALE_TEST_ALL_ENGINES") == "1":
                pytest.fail(f"{engine} is not installed")
            pytest.skip(f"{engine} is not installed: make test-engines")

    return check


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """Where the result of one process is that nothing befell."""
    from tests.engines.running import run

    out = tmp_path_factory.mktemp("undisturbed")
    ended = run(["-m", "tests.engines.jobs", str(out)])
    assert ended.returncode == 0, ended.stdout
    return out

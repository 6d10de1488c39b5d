"""The package as it would be published, built without the network: an sdist, and the wheel that is built from it."""

import shutil
import subprocess
import sys
import tarfile

import pytest

from tests.repository import ROOT

# What `python -m build` asks of pyproject.toml's backend; `make dist` does it in an environment of its own.
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"
NOT_SOURCE = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info", "demo_output", "results")


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The paths of sdist and wheel."""
    folder = tmp_path_factory.mktemp("built")
    shutil.copytree(ROOT, folder / "source", ignore=NOT_SOURCE)
    _build("build_sdist", folder / "source", folder)
    [sdist] = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    _build("build_wheel", folder / sdist.name.removesuffix(".tar.gz"), folder)
    [wheel] = folder.glob("*.whl")
    return sdist, wheel


def _build(hook, source, target):
    done = subprocess.run(
        [sys.executable, "-c", BUILD, hook, str(target)], cwd=source, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr

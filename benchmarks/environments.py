"""Which interpreter runs a contender? tf_keras gets an environment of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from packaging.version import Version

from benchmarks.contenders import Contender
from benchmarks.processes import ROOT

TF_KERAS_ENVIRONMENT = ROOT / ".venv-tf-keras"
_INSTALL_TIMEOUT_S = 600.0


def python_of(contender: Contender) -> Path:
    """The interpreter of a contender."""
    if contender.library == "tf_keras":
        return TF_KERAS_ENVIRONMENT / "bin" / "python"
    return Path(sys.executable)


def make_tf_keras_environment(tensorflow: str) -> str | None:
    """Installs tf_keras beside the given release of TensorFlow, unless that was done before.

    Args:
        tensorflow: Such as `"2.21.0"`.

    Returns:
        None when the environment is there, else why it is not.
    """
    stamp = TF_KERAS_ENVIRONMENT / "installed"
    if stamp.exists() and stamp.read_text() == tensorflow:
        return None
    # tf_keras asks for `tensorflow`; its minor release goes with TensorFlow's.
    release = Version(tensorflow)
    packages = [f"tensorflow=={tensorflow}", f"tf_keras=={release.major}.{release.minor}.*"]
    pip = [str(TF_KERAS_ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    try:
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(TF_KERAS_ENVIRONMENT)],
            [*pip, "--disable-pip-version-check", *packages],
        ):
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S)
    except subprocess.CalledProcessError as error:
        return (error.stderr.strip() or str(error)).splitlines()[-1]
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    stamp.write_text(tensorflow)
    return None

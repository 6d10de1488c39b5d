"""Which interpreter runs a contender? tf_keras, JAX, and PyTorch on GPUs get environments of their own."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from packaging.version import Version

from benchmarks.contenders import Contender
from benchmarks.processes import ROOT

TF_KERAS_ENVIRONMENT = ROOT / ".venv-tf-keras"
JAX_ENVIRONMENT = ROOT / ".venv-jax"
TORCH_ENVIRONMENT = ROOT / ".venv-torch"
# With its CUDA, which must not lie among TensorFlow's; numpy and psutil are what this package needs.
TORCH_PACKAGES = ("torch==2.13.*", "numpy>=1.26", "psutil>=5.9")
# Its builds for CPUs; the newest that this Python takes.
JAX_PACKAGES = ("jax>=0.6", "numpy>=1.26")
_INSTALL_TIMEOUT_S = 600.0


def python_of(contender: Contender) -> Path:
    """The interpreter of a contender."""
    if contender.library == "tf_keras":
        return TF_KERAS_ENVIRONMENT / "bin" / "python"
    if contender.library == "jax":
        return JAX_ENVIRONMENT / "bin" / "python"
    return Path(sys.executable)


def make_tf_keras_environment(tensorflow: str) -> str | None:
    """Installs tf_keras beside the given release of TensorFlow, unless that was done before.

    Args:
        tensorflow: Such as `"2.21.0"`.

    Returns:
        None when the environment is there, else why it is not.
    """
    # tf_keras asks for `tensorflow`; its minor release goes with TensorFlow's.
    release = Version(tensorflow)
    packages = [f"tensorflow=={tensorflow}", f"tf_keras=={release.major}.{release.minor}.*"]
    return make_environment(TF_KERAS_ENVIRONMENT, packages, _INSTALL_TIMEOUT_S)


def make_jax_environment(keras: str) -> str | None:
    """Installs JAX beside the given release of Keras, without TensorFlow, unless that was done before.

    Args:
        keras: Such as `"3.15.0"`.

    Returns:
        None when the environment is there, else why it is not.
    """
    return make_environment(JAX_ENVIRONMENT, [f"keras=={keras}", *JAX_PACKAGES], _INSTALL_TIMEOUT_S)


def make_environment(folder: Path, packages: Sequence[str], timeout_s: float) -> str | None:
    """Installs packages into an environment of their own, unless that was done before.

    Args:
        folder: Of the environment.
        packages: As pip takes them.
        timeout_s: Of each command.

    Returns:
        None when the environment is there, else why it is not.
    """
    stamp, wanted = folder / "installed", "\n".join(packages)
    if stamp.exists() and stamp.read_text() == wanted:
        return None
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        for command in ([sys.executable, "-m", "venv", "--clear", str(folder)], [*pip, *packages]):
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.CalledProcessError as error:
        return (error.stderr.strip() or str(error)).splitlines()[-1]
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    stamp.write_text(wanted)
    return None


def python_with_torch(*, has_gpus: bool) -> tuple[Path | None, str]:
    """Finds the interpreter that runs PyTorch, or says why there is none.

    Args:
        has_gpus: With GPUs its CUDA build is installed on first use (3 GB); without, only what lies here is taken.
    """
    if has_gpus:
        obstacle = make_environment(TORCH_ENVIRONMENT, TORCH_PACKAGES, 3 * _INSTALL_TIMEOUT_S)
        return (None, f"it was not installed: {obstacle}") if obstacle else (TORCH_ENVIRONMENT / "bin" / "python", "")
    if importlib.util.find_spec("torch") is None:
        return None, "it is not installed here; `make bench-torch` installs its build for CPUs"
    return Path(sys.executable), ""

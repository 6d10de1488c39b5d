"""Which TensorFlow and Keras releases does this tfscale stand on?"""

from __future__ import annotations

from typing import NamedTuple

from tfscale.errors import VersionError


class Supported(NamedTuple):
    """Minor releases of one package on which the whole test suite was run."""

    package: str
    releases: tuple[str, ...]
    """Oldest first."""


# Keras 3.12 is the newest that runs on Python 3.10.
KERAS = Supported("Keras", ("3.12", "3.14", "3.15"))
TENSORFLOW = Supported("TensorFlow", ("2.20", "2.21"))


def check_versions(keras_version: str, tensorflow_version: str, backend: str) -> None:
    """Raises unless tfscale was tested with these releases and Keras runs on TensorFlow.

    Args:
        keras_version: As `keras.__version__`.
        tensorflow_version: As `tensorflow.__version__`.
        backend: As `keras.backend.backend()`.

    Raises:
        VersionError: When a release is outside the tested range, or the backend is not TensorFlow.

    Example:
        >>> check_versions("3.15.1", "2.21.0", "tensorflow")
        >>> check_versions("3.2.0", "2.21.0", "tensorflow")
        Traceback (most recent call last):
        ...
        tfscale.errors.VersionError: tfscale needs Keras 3.12, 3.14 or 3.15 on TensorFlow 2.20 or 2.21.
        Received: Keras 3.2.0, TensorFlow 2.21.0. Install tested releases:
        pip install "keras~=3.15.0" "tensorflow~=2.21.0"
    """
    if backend != "tensorflow":
        raise VersionError(
            "tfscale trains Keras models on the TensorFlow backend.\n"
            f"Received: backend={backend!r}. Set KERAS_BACKEND=tensorflow before Keras is imported."
        )
    if not (_supports(KERAS, keras_version) and _supports(TENSORFLOW, tensorflow_version)):
        raise VersionError(
            f"tfscale needs {_range(KERAS)} on {_range(TENSORFLOW)}.\n"
            f"Received: Keras {keras_version}, TensorFlow {tensorflow_version}. Install tested releases:\n"
            f'pip install "keras~={KERAS.releases[-1]}.0" "tensorflow~={TENSORFLOW.releases[-1]}.0"'
        )


def _supports(supported: Supported, version: str) -> bool:
    return ".".join(version.split(".")[:2]) in supported.releases


def _range(supported: Supported) -> str:
    *older, newest = supported.releases
    return f"{supported.package} {', '.join(older)} or {newest}"

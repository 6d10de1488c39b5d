"""Which TensorFlow and Keras releases are refused?

What is refused is known not to do. What was not tried is not: `canary.py` compares its code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from tfscale.errors import VersionError


class Range(NamedTuple):
    """Releases of one package, from one on to the next major one."""

    package: str
    first: tuple[int, int]
    known_bad: Mapping[str, str]
    """Releases in between that give wrong results, and how."""

    def __str__(self) -> str:
        return f"{self.package} {'.'.join(map(str, self.first))} or newer, below {self.first[0] + 1}"

    @property
    def specifiers(self) -> SpecifierSet:
        """The range, as pip compares."""
        return SpecifierSet(f">={'.'.join(map(str, self.first))},<{self.first[0] + 1}")

    def why_not(self, version: str) -> str | None:
        """Why a release is refused; None where it is not, and an empty text where it is outside of the range."""
        try:
            found = Version(version)
        except InvalidVersion:
            return ""
        # What comes before a release is judged as that release: `>=3.12` alone would refuse 3.12.0rc1.
        if found.base_version not in self.specifiers:
            return ""
        wrong = (
            why for bad, why in self.known_bad.items() if SpecifierSet(f"=={bad}").contains(found, prereleases=True)
        )
        return next(wrong, None)


def normal_form(version: str) -> str:
    """Returns a version as package indexes write it; what is none, as it is.

    Example:
        >>> normal_form("2.22.0-rc0")
        '2.22.0rc0'
    """
    try:
        return str(Version(version))
    except InvalidVersion:
        return version


# Keras 3.12 is the newest that runs on Python 3.10.
KERAS = Range("Keras", (3, 12), {})
TENSORFLOW = Range("TensorFlow", (2, 20), {})


def check_versions(
    keras_version: str, tensorflow_version: str, backend: str, ranges: tuple[Range, Range] = (KERAS, TENSORFLOW)
) -> None:
    """Raises for releases that are too old, of another major version or known to be wrong, and for other backends.

    Args:
        keras_version: As `keras.__version__`.
        tensorflow_version: As `tensorflow.__version__`.
        backend: As `keras.backend.backend()`.
        ranges: Of Keras and of TensorFlow.

    Raises:
        VersionError: When a release is refused, or the backend is not TensorFlow.

    Example:
        >>> check_versions("3.15.1", "2.21.0", "tensorflow")
        >>> check_versions("3.2.0", "2.21.0", "tensorflow")
        Traceback (most recent call last):
        ...
        tfscale.errors.VersionError: tfscale needs Keras 3.12 or newer, below 4, on TensorFlow 2.20 or newer, below 3.
        Received: Keras 3.2.0, TensorFlow 2.21.0. Install others:
        pip install "keras>=3.12,<4" "tensorflow>=2.20,<3"
        See docs/errors.md#versionerror.
    """
    if backend != "tensorflow":
        raise VersionError(
            "tfscale trains Keras models on the TensorFlow backend.\n"
            f"Received: backend={backend!r}. Set KERAS_BACKEND=tensorflow before Keras is imported."
        )
    for each, version in zip(ranges, (keras_version, tensorflow_version), strict=True):
        why = each.why_not(version)
        if why is None:
            continue
        rule = f"tfscale needs {ranges[0]}, on {ranges[1]}."
        raise VersionError(
            f"{f'{each.package} {version} gives wrong results: {why}.' if why else rule}\n"
            f"Received: Keras {keras_version}, TensorFlow {tensorflow_version}. Install others:\n"
            f"pip install {_requirement(ranges[0])} {_requirement(ranges[1])}"
        )


def _requirement(each: Range) -> str:
    wrong = "".join(f",!={version}" for version in each.known_bad)
    major, minor = each.first
    return f'"{each.package.lower()}>={major}.{minor},<{major + 1}{wrong}"'

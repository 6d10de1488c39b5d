"""Are the right versions installed, and does TensorFlow start?"""

from collections.abc import Mapping, Sequence
from typing import Any

from tfscale.doctor.finding import ERROR, OK, WARNING, Finding
from tfscale.errors import VersionError
from tfscale.framework.canary import Canary
from tfscale.framework.versions import check_versions

_OLDEST_PYTHON = (3, 10)


def check_python(version: tuple[int, ...]) -> Finding:
    """Judges the version of Python."""
    text = "Python " + ".".join(map(str, version[:3]))
    if version[:2] >= _OLDEST_PYTHON:
        return Finding(OK, "python", text)
    return Finding(ERROR, "python", text, f"Install Python {'.'.join(map(str, _OLDEST_PYTHON))} or newer.")


def check_packages(versions: Mapping[str, str | None], backend: str) -> Finding:
    """Judges the installed versions, none of which has been imported.

    Args:
        versions: Of "tfscale", "TensorFlow" and "Keras"; None where one is missing.
        backend: Keras's backend, as far as the environment says.
    """
    text = ", ".join(f"{name} {version or 'missing'}" for name, version in versions.items())
    missing = [name.lower() for name, version in versions.items() if version is None]
    if missing:
        return Finding(ERROR, "packages", text, f"pip install {' '.join(missing)}")
    try:
        check_versions(str(versions["Keras"]), str(versions["TensorFlow"]), backend)
    except VersionError as error:
        return Finding(ERROR, "packages", text, str(error).replace("\n", " "))
    return Finding(OK, "packages", text)


def check_code(canaries: Sequence[Canary]) -> Finding:
    """Judges the code behind the unpromised names of Keras and TensorFlow, none of which has been imported."""
    told = [each.describe() for each in canaries]
    if not any(told):
        return Finding(OK, "code", "what tfscale stands on in Keras and TensorFlow is as it was tried")
    text = "; ".join(filter(None, told))
    if all(each.like for each in canaries):
        return Finding(OK, "code", text)
    return Finding(WARNING, "code", text, "tfscale verify train.py:build train.py:data")


def check_tensorflow(report: Mapping[str, Any], log: str) -> Finding:
    """Judges what the process said that was to start TensorFlow.

    Args:
        report: Of `tensorflow_child`.
        log: The end of its output.
    """
    if "import_s" not in report:
        last = [line.strip() for line in log.splitlines() if line.strip()][-1:] or ["it said nothing"]
        return Finding(
            ERROR,
            "tensorflow",
            f"TensorFlow does not start: {report.get('error') or last[0]}",
            "Run `python -c 'import tensorflow, keras'` to see the whole of it; install it in a new environment.",
        )
    if report["backend"] != "tensorflow":
        return Finding(
            ERROR,
            "tensorflow",
            f"Keras runs on the backend {report['backend']!r}",
            "Set KERAS_BACKEND=tensorflow, or correct ~/.keras/keras.json.",
        )
    cuda = report.get("cuda")
    built = f"built with CUDA {cuda}" if cuda else "built without CUDA"
    return Finding(OK, "tensorflow", f"imported in {report['import_s']:.1f} s, {built}")

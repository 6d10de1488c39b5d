import pytest

from tfscale import VersionError
from tfscale.framework.versions import check_versions


@pytest.mark.parametrize(
    ("keras", "tensorflow"),
    [
        ("3.14.0", "2.20.0"),
        ("3.15.1", "2.21.0"),
        ("3.15.0", "2.20.1"),
        ("3.14.9", "2.21.0-rc1"),
        ("3.12.4", "2.21.0"),
    ],
)
def test_supported(keras, tensorflow):
    check_versions(keras, tensorflow, "tensorflow")


@pytest.mark.parametrize(
    ("keras", "tensorflow"),
    [
        ("3.11.0", "2.21.0"),
        ("3.13.2", "2.21.0"),
        ("3.2.0", "2.21.0"),
        ("2.15.0", "2.21.0"),
        ("4.14.0", "2.21.0"),
        ("3.99.0", "2.21.0"),
        ("3.15.1", "2.16.0"),
        ("3.15.1", "2.99.0"),
        ("3.15.1", "3.20.0"),
    ],
)
def test_unsupported_versions_are_both_named(keras, tensorflow):
    with pytest.raises(VersionError) as caught:
        check_versions(keras, tensorflow, "tensorflow")
    said = str(caught.value)
    assert f"Keras {keras}" in said
    assert f"TensorFlow {tensorflow}" in said
    assert "pip install" in said


@pytest.mark.parametrize("backend", ["jax", "torch", "numpy"])
def test_other_backend(backend):
    with pytest.raises(VersionError, match=rf"Received: backend='{backend}'.*KERAS_BACKEND"):
        check_versions("3.15.1", "2.21.0", backend)

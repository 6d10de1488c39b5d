import pytest

from tfscale import VersionError
from tfscale.framework.versions import KERAS, TENSORFLOW, check_versions

REFUSING = KERAS._replace(known_bad={"3.16.0": "a replica's loss counts twice"})


@pytest.mark.parametrize(
    ("keras", "tensorflow"),
    [
        ("3.12.0", "2.20.0"),
        ("3.15.1", "2.21.0"),
        ("3.14.9", "2.21.0-rc1"),
        ("3.16.0", "2.22.0"),
        ("3.99.0", "2.99.0.dev20270101"),
    ],
)
def test_supported(keras, tensorflow):
    check_versions(keras, tensorflow, "tensorflow")


@pytest.mark.parametrize(
    ("keras", "tensorflow"),
    [
        ("3.11.0", "2.21.0"),
        ("3.2.0", "2.21.0"),
        ("2.15.0", "2.21.0"),
        ("4.14.0", "2.21.0"),
        ("3.15.1", "2.16.0"),
        ("3.15.1", "3.20.0"),
        ("unknown", "2.21.0"),
        ("3", "2.21.0"),
    ],
)
def test_unsupported_versions_are_both_named(keras, tensorflow):
    with pytest.raises(VersionError) as caught:
        check_versions(keras, tensorflow, "tensorflow")
    said = str(caught.value)
    assert f"Keras {keras}" in said
    assert f"TensorFlow {tensorflow}" in said
    assert 'pip install "keras>=3.12,<4" "tensorflow>=2.20,<3"' in said


def test_release_that_is_known_to_be_wrong():
    check_versions("3.16.1", "2.21.0", "tensorflow", (REFUSING, TENSORFLOW))
    with pytest.raises(VersionError) as caught:
        check_versions("3.16.0", "2.21.0", "tensorflow", (REFUSING, TENSORFLOW))
    said = str(caught.value)
    assert said.startswith("Keras 3.16.0 gives wrong results: a replica's loss counts twice.")
    assert '"keras>=3.12,<4,!=3.16.0"' in said


@pytest.mark.parametrize("backend", ["jax", "torch", "numpy"])
def test_other_backend(backend):
    with pytest.raises(VersionError, match=rf"Received: backend='{backend}'.*KERAS_BACKEND"):
        check_versions("3.15.1", "2.21.0", backend)

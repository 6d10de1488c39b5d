import configparser

import pytest
from packaging.requirements import Requirement

from tests.repository import ROOT
from tfscale import VersionError
from tfscale.framework.versions import KERAS, TENSORFLOW, check_versions, normal_form

REFUSING = KERAS._replace(known_bad={"3.16.0": "a replica's loss counts twice"})


@pytest.mark.parametrize(
    ("keras", "tensorflow"),
    [
        ("3.12.0", "2.20.0"),
        ("3.15.1", "2.21.0"),
        ("3.14.9", "2.21.0-rc1"),
        ("3.16.0", "2.22.0"),
        ("3.99.0", "2.99.0.dev20270101"),
        ("3.12", "2.20"),
        # What comes before a release has its code, or nearly: the canary tells.
        ("3.12.0rc1", "2.20.0rc0"),
        ("3.12rc1", "2.22rc0"),
        ("3.15.1", "2.22.0rc0"),
        ("3.15.1", "2.21.0.dev2026"),
        ("3.15.1", "2.21.0-dev20260101"),
        ("3.15.1.post1", "2.21.0+nv25.6"),
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
        ("3.11.0rc1", "2.21.0"),
        ("4.0.0rc0", "2.21.0"),
        ("4.0.0.dev2026", "2.21.0"),
        ("3.15.1", "2.19.1+nv25.6"),
        ("3.15.1", "3.0.0-rc0"),
        ("3.15.1", "1!2.21.0"),
        ("unknown", "2.21.0"),
        ("3.x", "2.21.0"),
        ("", "2.21.0"),
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


@pytest.mark.parametrize("keras", ["3.15.9", "3.16.1", "3.16.0rc1", "3.16.0.post1"])
def test_releases_beside_one_that_is_known_to_be_wrong(keras):
    check_versions(keras, "2.21.0", "tensorflow", (REFUSING, TENSORFLOW))


@pytest.mark.parametrize("keras", ["3.16.0", "3.16", "3.16.0+local.build"])
def test_release_that_is_known_to_be_wrong(keras):
    with pytest.raises(VersionError) as caught:
        check_versions(keras, "2.21.0", "tensorflow", (REFUSING, TENSORFLOW))
    said = str(caught.value)
    assert said.startswith(f"Keras {keras} gives wrong results: a replica's loss counts twice.")
    assert '"keras>=3.12,<4,!=3.16.0"' in said


@pytest.mark.parametrize("each", [KERAS, TENSORFLOW])
def test_what_is_refused_is_what_pip_is_asked_for(each):
    """setup.cfg says the same."""
    said = configparser.ConfigParser()
    said.read(ROOT / "setup.cfg")
    asked = [Requirement(line) for line in filter(None, said["options"]["install_requires"].split("\n"))]
    assert [one.specifier for one in asked if one.name == each.package.lower()] == [each.specifiers]


@pytest.mark.parametrize(
    ("version", "normal"),
    [("2.22.0-rc0", "2.22.0rc0"), ("2.21.0-dev20260101", "2.21.0.dev20260101"), ("3.15.1", "3.15.1"), ("x", "x")],
)
def test_normal_form(version, normal):
    assert normal_form(version) == normal


@pytest.mark.parametrize("backend", ["jax", "torch", "numpy"])
def test_other_backend(backend):
    with pytest.raises(VersionError, match=rf"Received: backend='{backend}'.*KERAS_BACKEND"):
        check_versions("3.15.1", "2.21.0", backend)

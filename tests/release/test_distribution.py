"""What is published: every file of the library and none besides, with the metadata that setup.cfg says."""

import configparser
import email.parser
import re
import tarfile
import zipfile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from noxfile import PAIRS
from tests.repository import LIBRARY, ROOT, library_files

DATA = ("py.typed", "framework/releases.json")


@pytest.fixture(scope="module")
def said():
    """What setup.cfg says."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg")
    return parser


@pytest.fixture(scope="module")
def wheel(built):
    with zipfile.ZipFile(built[1]) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def metadata(wheel):
    [text] = [content for name, content in wheel.items() if name.endswith(".dist-info/METADATA")]
    return email.parser.Parser().parsestr(text.decode())


def test_wheel_has_the_library_and_its_data_and_nothing_else(wheel):
    files = {name for name in wheel if ".dist-info/" not in name}
    assert files == {path.as_posix() for path in library_files()} | {f"tfscale/{name}" for name in DATA}
    assert [name for name in DATA if wheel[f"tfscale/{name}"] != (LIBRARY / name).read_bytes()] == []


def test_no_file_beside_the_code_was_forgotten():
    files = {path.relative_to(LIBRARY).as_posix() for path in LIBRARY.rglob("*") if path.is_file()}
    assert {name for name in files if not name.endswith((".py", ".pyc", ".pyo"))} == set(DATA)


def test_wheel_has_the_licence_and_the_command(wheel):
    [licence] = [name for name in wheel if re.search(r"\.dist-info/(licenses/)?LICENSE$", name)]
    assert wheel[licence] == (ROOT / "LICENSE").read_bytes()
    [entries] = [content for name, content in wheel.items() if name.endswith(".dist-info/entry_points.txt")]
    assert "tfscale = tfscale.cli:main" in entries.decode()


def test_sdist_has_what_a_wheel_is_built_of(built):
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {"LICENSE", "README.md", "pyproject.toml", "setup.cfg", *(f"tfscale/{name}" for name in DATA)}
    # Setuptools would take some of them, without what they need.
    assert not [name for name in names if name.startswith("tests/")]
    assert {name.partition("/")[0] for name in names}.isdisjoint({"tests", "benchmarks", "examples", "docs"})


def test_one_version_in_names_metadata_and_changelog(built, metadata, said):
    version = said["metadata"]["version"]
    assert metadata["Version"] == version
    assert [path.name.split("-")[1].removesuffix(".tar.gz") for path in built] == [version, version]
    releases = re.findall(r"^## \[(\d.*)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert ".dev" in version or releases[0] == version


def test_what_no_release_has_is_in_no_release(said):
    _, _, unreleased = (ROOT / "CHANGELOG.md").read_text().partition("## [Unreleased]\n")
    is_new = "\n- " in unreleased.partition("\n## [")[0]
    assert is_new == (".dev" in said["metadata"]["version"])


def test_nothing_but_setup_cfg_says_a_version():
    files = [ROOT / "pyproject.toml", ROOT / "mkdocs.yml", *map(ROOT.joinpath, library_files())]
    assign = re.compile(r"^\s*(__version__|version)\s*[:=]\s*\S*\d", re.MULTILINE)
    assert [str(path) for path in files if assign.search(path.read_text())] == []


def test_pythons_of_the_classifiers_begin_with_the_oldest(metadata):
    found = [each for each in metadata.get_all("Classifier") if re.search(r":: 3\.\d+$", each)]
    minors = [int(each.rpartition(".")[2]) for each in found]
    assert minors == list(range(minors[0], minors[-1] + 1))
    assert metadata["Requires-Python"] == f">=3.{minors[0]}"


def test_wheel_asks_for_what_setup_cfg_names_and_the_oldest_pair(metadata, said):
    asked = [each for each in metadata.get_all("Requires-Dist") if "extra ==" not in each]
    named = said["options"]["install_requires"].split("\n")[1:]
    assert sorted(map(_plain, asked)) == sorted(map(_plain, named))
    assert _plain(f"keras>={PAIRS[0][0].removesuffix('.*')},<4") in map(_plain, named)
    assert _plain(f"tensorflow>={PAIRS[0][1].removesuffix('.*')},<3") in map(_plain, named)
    assert set(metadata.get_all("Provides-Extra")) == set(said["options.extras_require"])


def _plain(requirement):
    """Name and limits, in whatever notation and order."""
    parsed = Requirement(requirement)
    return canonicalize_name(parsed.name), parsed.specifier

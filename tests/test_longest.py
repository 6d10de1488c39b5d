"""The files that are begun first are files."""

from tests.conftest import LONGEST
from tests.repository import ROOT


def test_files_exist():
    assert [name for name in LONGEST if not (ROOT / "tests" / name).is_file()] == []
    assert len(set(LONGEST)) == len(LONGEST)

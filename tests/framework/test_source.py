import textwrap

import pytest

from tfscale.framework.source import content

PLAIN = """
class A:
    def f(self, x, *, y=None):
        return x + y
"""


def written(tmp_path, text, name="package.module:A.f"):
    root = tmp_path / str(abs(hash(text)))
    root.mkdir()
    (root / "module.py").write_text(textwrap.dedent(text))
    return content(name, root)


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n    '''Words.'''\n\n    # A comment.\n    def f(self, x, *, y=None):\n        return (x +\n y)",
        "import sys\nif sys:\n    class A:\n        def f(self, x, *, y=None): return x + y  # more",
        "class B:\n    f = 1\n\nclass A:\n    g = 2\n\n    def f(self, x, *, y=None):\n        return x + y",
    ],
)
def test_layout_and_neighbours_do_not_count(tmp_path, text):
    assert written(tmp_path, text) == written(tmp_path, PLAIN)


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n    def f(self, x, *, y=None):\n        return y + x",
        "class A:\n    def f(self, x, *, y=0):\n        return x + y",
        "class A:\n    def f(self, x, y=None):\n        return x + y",
        "class A:\n    @property\n    def f(self, x, *, y=None):\n        return x + y",
        "class A:\n    def f(self, x, *, y=None):\n        return x + y + 0",
    ],
)
def test_what_is_computed_counts(tmp_path, text):
    assert written(tmp_path, text) not in (None, written(tmp_path, PLAIN))


@pytest.mark.parametrize("name", ["package.module:A.g", "package.module:B", "package.other:A", "package.module:A.f.g"])
def test_what_is_not_there(tmp_path, name):
    assert written(tmp_path, PLAIN, name) is None


def test_package_that_is_not_installed():
    assert content("no_such_package.module:A") is None

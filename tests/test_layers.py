"""The shape of the house: who may import whom, and how large a room may be."""

import ast
import sys

import pytest

from tests.repository import LIBRARY, ROOT, library_files

# Each part of the library, and the parts below it. A part that is not here has no place yet.
BELOW = {
    "errors": set(),
    "cluster": {"errors"},
    "scaling": {"errors"},
    "measure": {"errors"},
    "launch": {"errors", "cluster"},
    "training": {"errors", "cluster", "scaling"},
    "data_parallel": {"errors", "cluster", "scaling", "training"},
    "callbacks": {"errors", "cluster", "scaling", "training"},
    "doctor": {"errors", "cluster", "scaling", "launch", "training"},
    "flags": {"errors", "cluster", "scaling", "training", "data_parallel"},
    "parity": {"errors", "cluster", "scaling", "launch", "training", "data_parallel"},
    "cli": {"errors", "cluster", "scaling", "launch", "training", "data_parallel", "parity", "doctor"},
    "__main__": {"cli"},
    "__init__": {"errors", "cluster", "scaling", "launch", "training", "callbacks", "data_parallel", "flags", "parity"},
}
USES_TENSORFLOW = {"training", "data_parallel", "parity", "doctor"}
USES_MORE = {"flags": {"absl"}}
DEPENDENCIES = {"absl", "keras", "numpy", "tensorflow"}
_PRIVATE = ("_tf", "_fit", "_collective", "_datasets", "_graph", "_strategy")
MAY_USE_PRIVATE_NAMES = {f"tfscale/training/{name}_private.py" for name in _PRIVATE}
PRIVATE_NAMES = ("tensorflow.python", "tf.python", "tf.__internal__", "keras.src")

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60

every_file = pytest.mark.parametrize("path", library_files(), ids=str)


def test_every_part_has_a_place():
    assert {_part(path) for path in library_files()} <= set(BELOW)


def test_nothing_is_below_itself():
    for part, below in BELOW.items():
        assert part not in below
        assert all(BELOW[lower] <= below for lower in below if part != "__main__")


@every_file
def test_imports_point_down(path):
    part = _part(path)
    imported = {_part_of_module(name) for name in _imports(path) if _top(name) == "tfscale"}
    assert imported <= BELOW[part] | {part}


@every_file
def test_only_the_upper_parts_need_more_than_the_standard_library(path):
    allowed = DEPENDENCIES if _part(path) in USES_TENSORFLOW else USES_MORE.get(_part(path), set())
    outside = {_top(name) for name in _imports(path)} - sys.stdlib_module_names - {"tfscale"}
    assert outside <= allowed


@every_file
def test_private_names_of_the_frameworks_have_one_place(path):
    if path.as_posix() not in MAY_USE_PRIVATE_NAMES:
        assert [name for name in _framework_names(_tree(path)) if _is_private(name)] == []


@every_file
def test_library_raises_and_does_not_assert(path):
    assert [node.lineno for node in ast.walk(_tree(path)) if isinstance(node, ast.Assert)] == []


@every_file
def test_file_is_short(path):
    assert len((ROOT / path).read_text().splitlines()) <= MAX_FILE_LINES


@every_file
def test_functions_are_short(path):
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    lengths = {node.name: _lines(node) for node in ast.walk(_tree(path)) if isinstance(node, functions)}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_FUNCTION_LINES} == {}


@pytest.mark.parametrize(
    "code",
    [
        "import tensorflow.python",
        "from tensorflow.python.eager import context",
        "from tensorflow import python",
        "import keras.src.trainers",
        "from keras import src",
        "import tensorflow as tf; tf.python.eager",
        "import tensorflow as tf; tf.__internal__.distribute",
        "importlib.import_module('keras.src.backend')",
    ],
)
def test_every_spelling_of_a_private_name_is_seen(code):
    assert any(_is_private(name) for name in _framework_names(ast.parse(code)))


def test_public_spelling_is_not_called_private():
    code = '"""Wraps keras.src."""\nimport keras\nfrom tensorflow import distribute\nkeras.ops.mean'
    assert not any(_is_private(name) for name in _framework_names(ast.parse(code)))


def _part(path):
    return path.relative_to(LIBRARY.name).parts[0].removesuffix(".py")


def _part_of_module(name):
    """Returns the part of the library that a dotted name leads to."""
    return [*name.split("."), "__init__"][1]


def _top(name):
    return name.partition(".")[0]


def _tree(path):
    return ast.parse((ROOT / path).read_text(), filename=str(path))


def _imports(path):
    """Yields the dotted name of what every import names, those inside functions too."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "an import names its module in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _framework_names(tree):
    """Yields every dotted name in code that could lead into TensorFlow or Keras."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A module's name in a string; prose and docstrings have spaces.
            yield node.value if " " not in node.value else ""


def _is_private(name):
    return any(name == private or name.startswith(f"{private}.") for private in PRIVATE_NAMES)


def _lines(function):
    docstring = ast.get_docstring(function, clean=False)
    lines = function.end_lineno - function.lineno + 1
    return lines - (len(docstring.splitlines()) if docstring else 0)

"""The shape of the house: who may import whom, and how large a room may be."""

import ast
import functools
import sys
from collections import Counter

import pytest

from tests.repository import LIBRARY, ROOT, library_files

# Each room of the library, and the rooms below it. A room that is not here has no place yet.
_NUMBERS = ("errors", "moved", "cluster", "scaling", "measure", "study")
_TRAINS = (
    *("errors", "moved", "step_context", "framework", "cluster", "scaling", "measure", "replicas", "data", "exact"),
    *("gradients", "rederive", "recovery", "training"),
)
_COMMANDS = ("adopting", "console", "plan", "reporting", "study")
BELOW = {
    "errors": set(),
    "moved": set(),
    "step_context": set(),
    "framework": {"errors", "step_context"},
    "cluster": {"errors"},
    "scaling": {"errors"},
    "measure": {"errors"},
    "study": {"errors"},
    "plan": {"errors", "scaling", "measure", "study"},
    "launch": {"errors", "cluster"},
    "console": {"errors"},
    "adopting": {"errors"},
    "reporting": {"errors", "console", "measure"},
    "replicas": {"errors", "step_context", "framework", "cluster"},
    "data": {"errors", "step_context", "framework", "cluster", "replicas"},
    "exact": {"errors", "step_context", "framework", "cluster", "scaling", "replicas"},
    "gradients": {"errors", "step_context", "framework", "cluster", "scaling", "replicas", "exact"},
    "rederive": {"errors", "step_context", "framework", "cluster", "scaling", "replicas", "exact", "gradients"},
    "recovery": {"errors", "step_context", "framework", "cluster", "scaling", "replicas", "data", "exact", "gradients"},
    "training": {*_TRAINS} - {"training"},
    "loops": {"errors", "step_context", "framework", "cluster", "scaling", "replicas", "data", "exact", "gradients"},
    "data_parallel": {*_TRAINS},
    "callbacks": {*_TRAINS},
    "ray": {*_TRAINS, "launch"},
    "doctor": {*_TRAINS, "launch"},
    "flags": {*_TRAINS, "data_parallel"},
    "parity": {*_TRAINS, "launch", "data_parallel", "console"},
    "trials": {*_TRAINS, "launch", "data_parallel", "parity", "study", "plan", "console"},
    "sweeps": {*_TRAINS, "launch", "data_parallel", "parity", "study", "plan", "console", "trials"},
    "cli": {*_TRAINS, *_COMMANDS, "launch", "data_parallel", "parity", "doctor", "trials", "sweeps"},
    "__main__": {"cli"},
    "__init__": {
        *(*_TRAINS, *_NUMBERS, "plan", "launch", "data_parallel", "loops", "callbacks", "ray", "flags", "parity"),
        *("console", "trials", "sweeps"),
    },
}
# The rooms inside of `training`, alike; what lies in none of them is above them all.
INSIDE_TRAINING = {
    "step": set(),
    "check": {"step"},
    "callbacks": {"step"},
    "call": {"step", "check"},
    "": {"step", "check", "callbacks", "call"},
}
USES_TENSORFLOW = {
    *("framework", "replicas", "data", "exact", "gradients", "rederive", "recovery", "training"),
    *("loops", "data_parallel", "parity", "doctor", "trials", "sweeps"),
}
USES_MORE = {
    "flags": {"absl"},
    "cluster": {"psutil", "pynvml"},
    "ray": {"numpy", "psutil", "ray"},
    "console": {"matplotlib", "rich"},
    "cli": {"argcomplete"},
}
DEPENDENCIES = {"absl", "keras", "numpy", "packaging", "psutil", "tensorflow"}
# Extras, of one part.
EXTRAS = {"trials": {"optuna", "ray"}, "sweeps": {"optuna", "yaml"}}
MAY_USE_PRIVATE_NAMES = "framework"
WEAK_TABLES = ("WeakKeyDictionary", "WeakValueDictionary", "WeakSet")
PRIVATE_NAMES = ("tensorflow.python", "tf.python", "tf.__internal__", "keras.src")

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
# Where one room holds most of it all, a name says nothing.
MAX_ROOM_SHARE = 0.3


def in_files(find):
    """Returns what a rule finds, by file; nothing for a file in which all is as it should be."""
    return {str(path): found for path in library_files() if (found := find(path))}


def test_every_part_has_a_place():
    assert {_part(path) for path in library_files()} <= set(BELOW)


def test_nothing_is_below_itself():
    for part, below in BELOW.items():
        assert part not in below
        assert all(BELOW[lower] <= below for lower in below if part != "__main__")


def test_imports_point_down():
    def find(path):
        imported = {_part_of_module(name) for name in _imports(path) if _top(name) == "tfscale"}
        return imported - BELOW[_part(path)] - {_part(path)}

    assert in_files(find) == {}


def test_imports_point_down_inside_of_training_too():
    def find(path):
        if path.parts[1] != "training":
            return set()
        room = _room_of_training([*path.parts[:-1], path.stem])
        names = [name.split(".") for name in _imports(path)]
        imported = {_room_of_training(parts) for parts in names if parts[:2] == ["tfscale", "training"]}
        return imported - INSIDE_TRAINING[room] - {room}

    assert in_files(find) == {}


def test_inside_of_training_nothing_is_below_itself():
    for room, below in INSIDE_TRAINING.items():
        assert room not in below
        assert all(INSIDE_TRAINING[lower] <= below for lower in below)


def test_no_room_holds_most_of_it_all():
    lines = Counter()
    for path in library_files():
        lines[_part(path)] += len((ROOT / path).read_text().splitlines())
    [(largest, most)] = lines.most_common(1)
    assert most < MAX_ROOM_SHARE * lines.total(), largest


def test_what_is_not_of_the_standard_library_is_needed_where_it_is_named_here():
    def find(path):
        part = _part(path)
        allowed = DEPENDENCIES | EXTRAS.get(part, set()) if part in USES_TENSORFLOW else USES_MORE.get(part, set())
        outside = {_top(name) for name in _imports(path)} - sys.stdlib_module_names - {"tfscale"}
        return outside - allowed

    assert in_files(find) == {}


def test_private_names_of_the_frameworks_have_one_place():
    def find(path):
        may = _part(path) == MAY_USE_PRIVATE_NAMES
        return [] if may else [name for name in _framework_names(_tree(path)) if _is_private(name)]

    assert in_files(find) == {}


def test_attributes_that_begin_with_an_underscore_are_ones_own():
    may = MAY_USE_PRIVATE_NAMES
    assert in_files(lambda path: [] if _part(path) == may else _foreign_attributes(_tree(path))) == {}


def test_what_is_known_of_others_has_one_place():
    assert in_files(lambda path: [] if path.name == "owners.py" else _tables_of_others(_tree(path))) == {}


@pytest.mark.parametrize(
    "code",
    [
        "A = weakref.WeakKeyDictionary()",
        "A: weakref.WeakSet[Any] = weakref.WeakSet()",
        "class A:\n b = WeakValueDictionary()",
        "if x:\n a = weakref.WeakSet()",
        "A: dict[keras.Model, int] = {}",
        "A: dict[tuple[tf.distribute.Strategy, str], int] = {}",
    ],
)
def test_every_table_of_others_is_seen(code):
    assert len(_tables_of_others(ast.parse(code))) == 1


def test_tables_of_an_object_of_ours_are_its_own():
    code = "class A:\n def __init__(self):\n  self.a = weakref.WeakSet()\nB: dict[str, keras.Model] = {}"
    code += "\nC = Fact[WeakSet](A)"
    assert _tables_of_others(ast.parse(code)) == []


def test_what_a_thread_carries_has_one_place():
    def find(path):
        nodes = [node for node in _nodes(path) if isinstance(node, ast.Attribute | ast.ImportFrom)]
        return [node.lineno for node in nodes if "threading.local" in (_dotted(node), *_named_in(node))]

    [(path, lines)] = in_files(find).items()
    assert (path, len(lines)) == ("tfscale/step_context.py", 1)


def test_library_raises_and_does_not_assert():
    assert in_files(lambda path: [node.lineno for node in _nodes(path) if isinstance(node, ast.Assert)]) == {}


def test_files_are_short():
    lengths = {path: len((ROOT / path).read_text().splitlines()) for path in library_files()}
    assert {str(path): lines for path, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_functions_are_short():
    def find(path):
        functions = [node for node in _nodes(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        return {node.name: _lines(node) for node in functions if _lines(node) > MAX_FUNCTION_LINES}

    assert in_files(find) == {}


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


@pytest.mark.parametrize(
    "code", ["model._losses", "self._model._losses", "getattr(model, '_losses', None)", "setattr(x, '_losses', [])"]
)
def test_every_spelling_of_a_foreign_attribute_is_seen(code):
    assert _foreign_attributes(ast.parse(code)) == ["_losses"]


def test_what_a_file_defines_is_its_own():
    code = "class A:\n def __init__(self):\n  self._a = 1\n def __eq__(self, other):\n  return self._a == other._a"
    assert _foreign_attributes(ast.parse(f"{code}\nshare._replace(a=1)\nos._exit(1)")) == []


def test_public_spelling_is_not_called_private():
    code = '"""Wraps keras.src."""\nimport keras\nfrom tensorflow import distribute\nkeras.ops.mean'
    assert not any(_is_private(name) for name in _framework_names(ast.parse(code)))


def _part(path):
    return path.relative_to(LIBRARY.name).parts[0].removesuffix(".py")


def _room_of_training(parts):
    """Returns the room inside of `training` that a module lies in, by the parts of its name."""
    return parts[2] if len(parts) > 3 and parts[2] in INSIDE_TRAINING else ""


def _part_of_module(name):
    """Returns the part of the library that a dotted name leads to."""
    return [*name.split("."), "__init__"][1]


def _top(name):
    return name.partition(".")[0]


@functools.cache
def _tree(path):
    return ast.parse((ROOT / path).read_text(), filename=str(path))


@functools.cache
def _nodes(path):
    return list(ast.walk(_tree(path)))


def _imports(path):
    """Yields the dotted name of what every import names, those inside functions and those in strings too."""
    for node in _nodes(path):
        if isinstance(node, ast.Call) and _dotted(node.func) == "importlib.import_module":
            yield from (arg.value for arg in node.args if isinstance(arg, ast.Constant))
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "an import names its module in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _foreign_attributes(tree):
    """Returns the attributes with an underscore that code reads or sets, and that no class in it has."""
    own = {"_replace", "_fields", "_exit"}
    own |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_self(node.value)}
    for kind in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        own |= {ast.unparse(node.target) for node in kind.body if isinstance(node, ast.AnnAssign)}
    named = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _dotted(node.func) in ("getattr", "setattr", "hasattr", "delattr"):
            named += [arg.value for arg in node.args[1:2] if isinstance(arg, ast.Constant)]
    return [name for name in named if name.startswith("_") and not name.startswith("__") and name not in own]


def _tables_of_others(tree):
    """Returns the lines that make a table, outside of functions, of objects of Keras or TensorFlow."""
    lines = []
    for node in _outside_of_functions(tree):
        if isinstance(node, ast.Call) and _dotted(node.func).rpartition(".")[2] in WEAK_TABLES:
            lines.append(node.lineno)
        kind = node.annotation if isinstance(node, ast.AnnAssign) else None
        is_dict = isinstance(kind, ast.Subscript) and ast.unparse(kind.value) == "dict"
        if is_dict and any(name in ast.unparse(kind.slice.elts[0]) for name in ("keras.", "tf.")):
            lines.append(node.lineno)
    return lines


def _outside_of_functions(node):
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _outside_of_functions(child)


def _dotted(node):
    """Returns the name that an attribute of an attribute of a name is, or an empty text, faster than `ast.unparse`."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{_dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


def _named_in(node):
    return [f"{node.module}.{alias.name}" for alias in node.names] if isinstance(node, ast.ImportFrom) else []


def _is_self(node):
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _framework_names(tree):
    """Yields every dotted name in code that could lead into TensorFlow or Keras."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield _dotted(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A module's name in a string; prose and docstrings have spaces.
            yield node.value if " " not in node.value else ""


def _is_private(name):
    return any(name == private or name.startswith(f"{private}.") for private in PRIVATE_NAMES)


def _lines(function):
    docstring = ast.get_docstring(function, clean=False)
    lines = function.end_lineno - function.lineno + 1
    return lines - (len(docstring.splitlines()) if docstring else 0)

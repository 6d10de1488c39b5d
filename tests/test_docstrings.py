"""Every docstring example runs, as a reader would type it in; who needs several devices has a process of its own."""

import ast
import doctest
import importlib
import re

import pytest

import tfscale
from tests.processes import run_case
from tests.repository import ROOT, library_files, module_name


def _docstrings(path):
    """Yields (qualified name, docstring) for a file and every class and function in it."""

    def walk(node, name):
        if docstring := ast.get_docstring(node):
            yield name, docstring
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.ClassDef, ast.FunctionDef)):
                yield from walk(child, f"{name}.{child.name}")

    return walk(ast.parse((ROOT / path).read_text()), module_name(path))


def examples_of(paths):
    """The docstrings with examples, by the name of what they describe."""
    return {name: (path, docstring) for path in paths for name, docstring in _docstrings(path) if ">>>" in docstring}


# Those of `tfscale.ray` need Ray: tests/engines/test_ray.py.
EXAMPLES = examples_of(path for path in library_files() if path.parts[1] != "ray")


# Logical devices are made before TensorFlow starts, and a process has one strategy of several; any number have one.
ALONE = re.compile(r"simulate_replicas\(|verify\(|Strategy\(|(make_strategy|DataParallel)\((?![^)]*devices=1)")


@pytest.fixture(scope="module")
def reports():
    """What doctest has to say, by example, about those that need no process of their own."""
    together = [(module_name(path), name, text) for name, (path, text) in EXAMPLES.items() if not ALONE.search(text)]
    # One of them shows that importing tfscale does not load TensorFlow.
    return run_case("tests.test_docstrings:run_examples", args=(together,), fresh=True)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name, reports):
    path, docstring = EXAMPLES[name]
    if ALONE.search(docstring):
        report = run_case("tests.test_docstrings:run_example", args=(module_name(path), name, docstring))
    else:
        report = reports[name]
    assert report == ""


def run_examples(examples):
    """As `run_example` for each of several, by name."""
    return {name: run_example(module, name, docstring) for module, name, docstring in examples}


def run_example(module, name, docstring):
    """Returns what doctest has to say about an example that starts with its module's names."""
    names = dict(vars(importlib.import_module(module)))
    test = doctest.DocTestParser().get_doctest(docstring, names, name, None, 0)
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    report = []
    doctest.DocTestRunner(optionflags=options).run(test, out=report.append)
    return "".join(report)


def test_wrong_example_is_reported():
    assert "Got:\n    2" in run_example("tfscale.errors", "wrong", ">>> 1 + 1\n3\n")


# A child of TfscaleError is shown by what raises it.
@pytest.mark.parametrize("name", [n for n in tfscale._HOMES if n == "TfscaleError" or not n.endswith("Error")])
def test_public_name_has_an_example(name):
    home = tfscale._HOMES[name]
    assert any(each.startswith(f"{home}.") and each.endswith(f".{name}") for each in EXAMPLES)

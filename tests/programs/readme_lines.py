"""Adds the README's lines to a plain Keras script, and nothing else.

`python -m tests.programs --show NAME` prints what comes of it:

    import tfscale
    tfscale.simulate_replicas(3)
    ...                                     # the script's imports, and
    BATCH = 8
    dp = tfscale.DataParallel(global_batch=BATCH)
    with dp.scope():
        ...                                 # what makes models, optimizers, metrics, and compiles
    dp.prepare(model).fit(...)              # what trains stands outside, and every model that trains was prepared

A script that was written for tf.distribute keeps its scopes. Only the line that makes its strategy is another one:

    dp = tfscale.DataParallel(global_batch=BATCH, devices=tf.distribute.MirroredStrategy(devices))
    strategy = dp.strategy
"""

import ast
import itertools
import re

from tests.programs.program import Program, makes_strategy
from tfscale.adopting.placing import adopt
from tfscale.adopting.source import read_source

# A model on which only `predict` is called stays as it is: an encoder of a model that was prepared, say.
_PREPARED_FOR = {"fit", "evaluate", "train_on_batch", "test_on_batch"}
# A statement at the top level that has one of these is no building, but training.
_TRAINS = re.compile(r"\.(fit|evaluate|predict|train_on_batch|test_on_batch|predict_on_batch)\(|GradientTape|step\(")


def with_readme_lines(
    tree: ast.Module,
    num_replicas: int,
    *,
    one_scope: bool = False,
    on_gpu: bool = False,
    on_workers: bool = False,
    parallel: str = "",
) -> ast.Module:
    """`tree` with the README's lines for `num_replicas` devices of one process.

    Args:
        tree: The plain script.
        num_replicas: How many devices to simulate.
        one_scope: Whether the whole script stands in one `with dp.scope():`, what trains included.
        on_gpu: Whether the replicas are parts of a GPU.
        on_workers: Whether this process is one of several workers: a strategy of the script's own is that of all then.
        parallel: Further arguments of `DataParallel`, such as `"micro_batch=2"`.
    """
    given = "global_batch=BATCH" + (f", {parallel}" if parallel else "")
    if any(makes_strategy(each) for each in tree.body):
        devices = [f"{'GPU' if on_gpu else 'CPU'}:{i}" for i in range(num_replicas)]
        made = "" if on_workers else f", devices=tf.distribute.MirroredStrategy({devices})"
        return _with_own_strategy(tree, num_replicas, given + made)
    start = next(i for i, each in enumerate(tree.body) if ast.unparse(each).startswith("BATCH = ")) + 1
    first = 1 if ast.get_docstring(tree) is not None else 0
    body = [
        *tree.body[:first],
        *ast.parse(f"import tfscale\ntfscale.simulate_replicas({num_replicas})").body,
        *tree.body[first:start],
        *ast.parse(f"dp = tfscale.DataParallel({given})").body,
    ]
    rest = _Prepare().visit(ast.parse(ast.unparse(tree))).body[start:]
    for trains, group in itertools.groupby(rest, key=lambda each: not one_scope and _trains(each)):
        statements = list(group)
        body += statements if trains else [_in_scope(statements)]
    return ast.fix_missing_locations(ast.Module(body, type_ignores=[]))


def _with_own_strategy(tree: ast.Module, num_replicas: int, given: str) -> ast.Module:
    handed_over = ast.parse(f"dp = tfscale.DataParallel({given})\nstrategy = dp.strategy").body
    body = ast.parse(f"import tfscale\ntfscale.simulate_replicas({num_replicas})").body
    for statement in _Prepare().visit(ast.parse(ast.unparse(tree))).body:
        body += handed_over if makes_strategy(statement) else [statement]
    return ast.fix_missing_locations(ast.Module(body, type_ignores=[]))


def with_lines_of_init(program: Program, num_replicas: int) -> ast.Module:
    """The program with the lines that `tfscale init --simulate` adds."""
    adoption = adopt(read_source(program.path), simulate=num_replicas)
    if adoption.not_placed:
        raise ValueError(f"{program.name}: {adoption.not_placed}")
    return ast.parse(adoption.text)


def _trains(statement: ast.stmt) -> bool:
    defines = isinstance(statement, ast.FunctionDef | ast.ClassDef)
    return not defines and bool(_TRAINS.search(ast.unparse(statement)))


def _in_scope(statements: list[ast.stmt]) -> ast.stmt:
    scope = ast.parse("with dp.scope():\n    pass").body[0]
    scope.body = statements
    return scope


def in_float64(tree: ast.Module) -> ast.Module:
    """`tree` with "float64" wherever it says "float32"; Keras's own default is set beside it."""
    return ast.fix_missing_locations(_Float64().visit(ast.parse(ast.unparse(tree))))


class _Prepare(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        method = node.func
        if isinstance(method, ast.Attribute) and method.attr in _PREPARED_FOR and not _is_inside(method.value):
            method.value = ast.Call(ast.parse("dp.prepare", mode="eval").body, [method.value], [])
        return node


def _is_inside(receiver: ast.expr) -> bool:
    """Whether a class talks about itself: `self.fit`, `super().fit`, a callback's `self.model.evaluate`."""
    return ast.unparse(receiver).startswith(("self", "super()"))


class _Float64(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant("float64") if node.value == "float32" else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
        self.generic_visit(node)
        if node.attr == "float32":
            node.attr = "float64"
        return node

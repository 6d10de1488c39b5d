"""The same program with arguments more: what trains as it stands may not with several steps a call, or by XLA.

`python -m tests.programs --compile "steps_per_execution=3" --optimizer "global_clipnorm=0.05"` gives them to plain
Keras and to tfscale, `--parallel "micro_batch=2"` to `DataParallel`.
"""

import ast

import keras

from tests.programs.outcome import Arguments

_OPTIMIZERS = {
    name.lower(): name
    for name, kind in vars(keras.optimizers).items()
    if isinstance(kind, type) and issubclass(kind, keras.optimizers.Optimizer)
}


def with_arguments(tree: ast.Module, arguments: Arguments) -> ast.Module:
    """`tree` with these arguments in its calls."""
    if arguments == Arguments():
        return tree
    return ast.fix_missing_locations(_More(arguments).visit(ast.parse(ast.unparse(tree))))


class _More(ast.NodeTransformer):
    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if not isinstance(node.func, ast.Attribute):
            return node
        owner, name = ast.unparse(node.func.value), node.func.attr
        if name == "compile" and owner != "re" and not owner.startswith("super()"):
            _add(node, self._arguments.compiled)
            node.args[:1] = [self._made(each) for each in node.args[:1]]
            for each in node.keywords:
                each.value = self._made(each.value) if each.arg == "optimizer" else each.value
        if name in _OPTIMIZERS.values() and owner.endswith("optimizers"):
            _add(node, self._arguments.optimizers)
        return node

    def _made(self, optimizer: ast.expr) -> ast.expr:
        """An optimizer that is named, as a call that makes it."""
        name = optimizer.value if isinstance(optimizer, ast.Constant) else None
        if not (self._arguments.optimizers and isinstance(name, str) and name.lower() in _OPTIMIZERS):
            return optimizer
        made = f"keras.optimizers.{_OPTIMIZERS[name.lower()]}({self._arguments.optimizers})"
        return ast.parse(made, mode="eval").body


def _add(call: ast.Call, arguments: str) -> None:
    given = {each.arg for each in call.keywords}
    more = ast.parse(f"f({arguments})", mode="eval").body
    assert isinstance(more, ast.Call)
    # Nobody knows what `**options` holds.
    call.keywords += [each for each in more.keywords if each.arg not in given and None not in given]

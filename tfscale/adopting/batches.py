"""Which expression of a script says how many examples one step has?"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tfscale.adopting.reading import Script

_BATCHED = {"batch", "padded_batch", "ragged_batch"}
_KERAS_DEFAULT = 32
_MOST_STEPS = 8


class BatchSearch:
    """Looks for the global batch.

    Args:
        script: Where to look.
    """

    def __init__(self, script: Script):
        self._script = script
        self._parents = {
            id(child): parent for parent in ast.walk(script.tree) for child in ast.iter_child_nodes(parent)
        }

    def find(self) -> tuple[ast.expr | None, str]:
        """Returns the expression, or None, and what is to be said about it."""
        fits = [call for call in self._calls() if self._script.trains(call) and _name(call) == "fit"]
        found = [each for call in fits for each in self._of_fit(call)]
        if not found and not fits:
            found = [
                each for call in self._calls() if _name(call) in _BATCHED for each in self._argument(call, "batch_size")
            ]
        found = [each for each in found if not (isinstance(each, ast.Constant) and each.value is None)]
        texts = {ast.unparse(each): each for each in found}
        if (
            len(texts) > 1
            and len(named := {text: each for text, each in texts.items() if "batch" in text.lower()}) == 1
        ):
            texts = named
        if len(texts) == 1:
            return next(iter(texts.values())), ""
        if texts:
            shown = ", ".join(f"{text} (line {each.lineno})" for text, each in texts.items())
            return None, f"the batch of a step: it may be {shown}; give --global-batch"
        constants = self._constants()
        if len(constants) == 1:
            return ast.Name(constants[0]), ""
        if fits and all(self._is_array(call) for call in fits):
            return ast.Constant(_KERAS_DEFAULT), f"`fit` names no batch: {_KERAS_DEFAULT} is Keras's own for arrays"
        return None, "the batch of a step: no `batch_size=`, no `.batch(...)` of what is fitted; give --global-batch"

    def per_replica(self, batch: ast.expr) -> ast.expr | None:
        """Of `64 * strategy.num_replicas_in_sync`, or of a name for it, the 64; None for any other."""
        values = self._script.values.get(batch.id, []) if isinstance(batch, ast.Name) else [batch]
        if len(values) != 1 or not isinstance(values[0], ast.BinOp) or not isinstance(values[0].op, ast.Mult):
            return None
        sides = [values[0].left, values[0].right]
        counted = [ast.unparse(side).endswith(".num_replicas_in_sync") for side in sides]
        return sides[counted.index(False)] if sorted(counted) == [False, True] else None

    def _of_fit(self, call: ast.Call) -> list[ast.expr]:
        given = [each.value for each in call.keywords if each.arg == "batch_size"]
        if not given and len(call.args) > 2:
            given = [call.args[2]]
        if given:
            return [each for value in given for each in self._resolve(value, 0)]
        data = [*call.args[:1], *(each.value for each in call.keywords if each.arg == "x")]
        return [batch for each in data for batch in self._in_data(each, set())]

    def _in_data(self, data: ast.expr, seen: set[int]) -> Iterator[ast.expr]:
        """The batches of all that a data set is made of: names, and functions of the script, are followed."""
        for node in ast.walk(data):
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, ast.Call):
                if _name(node) in _BATCHED or _name(node).endswith("_from_directory"):
                    yield from self._argument(node, "batch_size")
                function = self._script.functions.get(node.func.id) if isinstance(node.func, ast.Name) else None
                for statement in function.body if function else []:
                    for each in ast.walk(statement):
                        if isinstance(each, ast.Call) and _name(each) in _BATCHED:
                            yield from self._argument(each, "batch_size")
            elif isinstance(node, ast.Name):
                for value in self._script.values.get(node.id, []):
                    yield from self._in_data(value, seen)

    def _argument(self, call: ast.Call, name: str) -> list[ast.expr]:
        given = [each.value for each in call.keywords if each.arg == name]
        if not given and _name(call) in _BATCHED:
            given = call.args[:1]
        return [each for value in given for each in self._resolve(value, 0)]

    def _resolve(self, value: ast.expr, steps: int) -> list[ast.expr]:
        """`value`; where it is an argument of a function of the script, what the calls give for it."""
        function = self._function_around(value) if isinstance(value, ast.Name) else None
        if function is None or not isinstance(value, ast.Name) or steps > _MOST_STEPS:
            return [value]
        arguments = [*function.args.posonlyargs, *function.args.args]
        names = [each.arg for each in arguments]
        if value.id not in [*names, *(each.arg for each in function.args.kwonlyargs)]:
            return [value]
        default = dict(zip(names[::-1], function.args.defaults[::-1], strict=False))
        kept = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        default |= {each.arg: given for each, given in kept if given is not None}
        found: list[ast.expr] = []
        for call in self._calls():
            if _name(call) != function.name:
                continue
            shift = 1 if names[:1] == ["self"] else 0
            place = names.index(value.id) - shift if value.id in names else len(call.args)
            given = [each.value for each in call.keywords if each.arg == value.id] or call.args[place : place + 1]
            given = given or [each for each in [default.get(value.id)] if each is not None]
            found += [each for one in given for each in self._resolve(one, steps + 1)]
        return found or [default[value.id]] if value.id in default else found or [value]

    def _function_around(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        parent = self._parents.get(id(node))
        while parent is not None and not isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            parent = self._parents.get(id(parent))
        return parent

    def _constants(self) -> list[str]:
        """The names at the top level that speak of a batch, and are one number."""
        names = []
        for node in self._script.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and type(node.value.value) is int:
                names += [each.id for each in node.targets if isinstance(each, ast.Name) and "batch" in each.id.lower()]
        return names

    def _is_array(self, call: ast.Call) -> bool:
        """Whether `fit` is given x and y: data sets and generators bring their own y."""
        return len(call.args) > 1 or any(each.arg == "y" for each in call.keywords)

    def _calls(self) -> Iterator[ast.Call]:
        return (node for node in ast.walk(self._script.tree) if isinstance(node, ast.Call))


def _name(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""

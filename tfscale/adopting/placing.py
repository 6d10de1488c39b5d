"""Where do tfscale's lines stand in a script?"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field

from tfscale.adopting.batches import BatchSearch
from tfscale.adopting.one_worker import branches_of_one_worker, remarks_on_files
from tfscale.adopting.reading import PREPARED_FOR, Deeds, Script
from tfscale.adopting.source import Edits, Source

_BLOCKS = ("body", "orelse", "finalbody")
_DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
_HANDED_OVER = ("MirroredStrategy", "MultiWorkerMirroredStrategy", "experimental.MultiWorkerMirroredStrategy")


@dataclass(frozen=True)
class _Line:
    """A line that is added before line `number`, as deep as the first `column` bytes of line `like`."""

    number: int
    column: int
    like: int
    text: str


@dataclass
class Adoption:
    """What becomes of a script.

    Args:
        source: The script.
        text: The script with the lines; as it was where nothing could be placed.
        placed: What was added, in words.
        not_placed: What has to be done by hand.
        remarks: What is to be known about it.
    """

    source: Source
    text: str
    placed: list[str] = field(default_factory=list)
    not_placed: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def diff(self) -> str:
        """The lines, as a unified diff that `git apply` and `patch -p1` take."""
        name = self.source.path.as_posix().lstrip("/")
        old, new = (text.splitlines(keepends=True) for text in (self.source.text, self.text))
        lines = difflib.unified_diff(old, new, f"a/{name}", f"b/{name}")
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def adopt(source: Source, *, global_batch: int | None = None, simulate: int | None = None) -> Adoption:
    r"""Adds the lines that a plain Keras script needs.

    Args:
        source: The script.
        global_batch: Examples of one step; found in the script by default.
        simulate: Logical CPU devices to train on, for a machine without GPUs.

    Returns:
        The new text, and what could not be placed.

    Raises:
        ScriptError: When the script is no Python.

    Example:
        >>> from pathlib import Path
        >>> from tfscale.adopting.placing import adopt
        >>> from tfscale.adopting.source import Source
        >>> text = "import keras\nmodel = keras.Sequential()\nmodel.compile()\nmodel.fit(x, y, batch_size=64)\n"
        >>> print(adopt(Source(Path("a.py"), text)).text, end="")
        import keras
        import tfscale
        dp = tfscale.DataParallel(global_batch=64)
        with dp.scope():
            model = keras.Sequential()
            model.compile()
        dp.prepare(model).fit(x, y, batch_size=64)
    """
    script = Script(source.tree())
    if any(name.partition(".")[0] == "tfscale" for name in script.imports.values()):
        return Adoption(source, source.text, remarks=["the script imports tfscale already"])
    return _Placing(source, script).place(global_batch, simulate)


class _Placing:
    def __init__(self, source: Source, script: Script):
        self._source = source
        self._script = script
        self._edits = Edits(source)
        self._result = Adoption(source, source.text)
        self._name = "dp" if "dp" not in _all_names(script.tree) else "parallel"
        self._done: set[int] = set()
        self._used: list[int] = []
        self._strategies = _strategies(script)
        self._alone = branches_of_one_worker(script)

    def place(self, global_batch: int | None, simulate: int | None) -> Adoption:
        search = BatchSearch(self._script)
        batch, remark = (ast.Constant(global_batch), "") if global_batch else search.find()
        if batch is None:
            self._result.not_placed.append(remark)
            return self._result
        self._result.remarks += [remark] if remark else []
        self._prepare()
        self._judge_one_worker()
        self._result.remarks += remarks_on_files(self._script, self._name)
        if not self._used:
            self._result.not_placed.append("`fit`, `train_on_batch` or a loop with `tf.GradientTape`: there is none")
        # Before what stands under the scope: lines that are added at one place stay in this order.
        made = self._hand_over(batch, search) if self._strategies else self._make(batch)
        self._import(simulate, made)
        if not self._strategies:
            self._block(self._script.tree.body)
        if not self._result.not_placed:
            self._result.text = self._edits.apply()
            ast.parse(self._result.text)
        return self._result

    def _say(self, line: int, what: str) -> None:
        self._result.placed.append(f"line {line}: {what}")

    def _prepare(self) -> None:
        """What trains is prepared: once more is no harm."""
        for node in ast.walk(self._script.tree):
            if isinstance(node, ast.With) and any(self._script.is_tape(item.context_expr) for item in node.items):
                self._used.append(node.lineno)
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if self._script.is_step_of_model(node.func) and not self._script.is_in_keras_class(node):
                self._used.append(node.lineno)
            receiver = node.func.value
            is_own = self._script.is_in_keras_class(node) and ast.unparse(receiver).startswith(("self", "super()"))
            if node.func.attr in PREPARED_FOR and self._script.trains(node) and not is_own:
                # Also of several lines: text goes in at both of its ends.
                self._edits.insert(receiver.lineno, receiver.col_offset, f"{self._name}.prepare(")
                self._edits.insert(receiver.end_lineno or 0, receiver.end_col_offset or 0, ")")
                self._used.append(node.lineno)
                self._say(node.lineno, f"`{ast.unparse(receiver)[:60]}` is prepared for `{node.func.attr}`")

    def _judge_one_worker(self) -> None:
        """What one worker does alone must be nothing that all take part in: what a prepared model does is."""
        nodes = [
            node for node in ast.walk(self._script.tree) if isinstance(node, ast.Call) and self._script.trains(node)
        ]
        trained = [(node, node.func) for node in nodes if isinstance(node.func, ast.Attribute)]
        prepared = {ast.unparse(method.value) for _, method in trained if method.attr in PREPARED_FOR}
        for branch in self._alone:
            inside = {id(node) for node in ast.walk(branch)}
            for call, method in trained:
                name = ast.unparse(method.value)
                if id(call) in inside and (method.attr in PREPARED_FOR or name in prepared):
                    self._fail(
                        f"line {call.lineno}: `{name[:60]}.{method.attr}` on one worker alone; it takes all workers: "
                        f"take it out of the `if` of line {branch.lineno}"
                    )

    def _block(self, statements: Sequence[ast.stmt], *, is_step: bool = False) -> None:
        """Puts what makes models under the scope, and leaves outside what trains.

        Args:
            statements: The block.
            is_step: Whether it is run again and again: to call a layer there is to use it, not to build it.
        """
        group: list[list[ast.stmt]] = []
        for unit in _units(statements):
            deeds = self._deeds(unit, is_step)
            if any(statement in self._alone for statement in unit):
                self._close(group, is_step)
                group = []
                if deeds.makes:
                    line = unit[0].lineno
                    self._result.remarks.append(f"line {line}: what one worker alone makes stays outside of the scope")
                continue
            for statement in unit:
                self._functions(statement)
            if deeds.trains:
                self._close(group, is_step)
                group = []
                self._divide(unit, deeds, is_step)
            elif any(isinstance(statement, (*_DEFINED, *_IMPORTS)) for statement in unit) and not deeds.makes:
                self._close(group, is_step)
                group = []
            elif deeds.makes or group:
                group.append(unit)
        self._close(group, is_step)

    def _deeds(self, unit: Sequence[ast.stmt], is_step: bool) -> Deeds:
        deeds = Deeds()
        for statement in unit:
            deeds |= self._script.deeds(statement)
        return Deeds(deeds.makes or (deeds.calls and not is_step and not deeds.trains), deeds.trains)

    def _divide(self, unit: list[ast.stmt], deeds: Deeds, is_step: bool) -> None:
        if not deeds.makes:
            return
        blocks = [block for block in _blocks(unit[0]) if block] if len(unit) == 1 else []
        if blocks and all(block[0].lineno > unit[0].lineno for block in blocks):
            is_loop = isinstance(unit[0], ast.For | ast.AsyncFor | ast.While)
            for block in blocks:
                self._block(block, is_step=is_step or is_loop)
        elif not all(self._is_done(statement) for statement in unit):
            self._wrap(unit[0], unit[-1])

    def _functions(self, node: ast.AST) -> None:
        """What a function makes and trains is divided inside of it."""
        for function in self._script.functions_called(node):
            if id(function) in self._done:
                continue
            deeds = self._deeds(function.body, True)
            if deeds.trains:
                self._done.add(id(function))
                if function.body[0].lineno == function.lineno and deeds.makes:
                    self._fail(f"line {function.lineno}: the scope in a function of one line; give it several")
                else:
                    self._block(function.body, is_step=self._script.has_tape(function))

    def _is_done(self, statement: ast.stmt) -> bool:
        """Whether all that a statement makes is made in functions that were divided."""
        called = self._script.functions_called(statement)
        return bool(called) and all(
            id(function) in self._done for function in called if self._deeds(function.body, True).makes
        )

    def _close(self, group: list[list[ast.stmt]], is_step: bool) -> None:
        while group and not self._deeds(group[-1], is_step).makes:
            group.pop()
        if group:
            self._wrap(group[0][0], group[-1][-1])

    def _wrap(self, first: ast.stmt, last: ast.stmt) -> None:
        start = _first_line(first)
        for branch in self._alone:
            if start <= branch.lineno <= (last.end_lineno or start) and self._deeds([branch], True).makes:
                self._fail(
                    f"line {branch.lineno}: what one worker alone makes, among what all make; move that `if` below it"
                )
        self._edits.indent(start, last.end_lineno or start, first.col_offset, f"with {self._name}.scope():")
        where = f"lines {start} to {last.end_lineno}" if last.end_lineno != start else f"line {start}"
        self._result.placed.append(f"{where}: what makes models and optimizers is under the scope")

    def _make(self, batch: ast.expr) -> _Line | None:
        """The line that makes `dp`, as early as its batch is known."""
        names = {node.id for node in ast.walk(batch) if isinstance(node, ast.Name)}
        text = f"{self._name} = tfscale.DataParallel(global_batch={ast.unparse(batch)})"
        if any(isinstance(node, ast.Call) for node in ast.walk(batch)):
            return self._fails(f"`{text}`: give the batch a name first, `{ast.unparse(batch)}`")
        block = self._block_that_binds(names)
        if block is None:
            known = ", ".join(f"`{name}`" for name in sorted(names))
            return self._fails(f"`{text}`: {known} must be known at the top level of the script, above what needs it")
        bound = [index + 1 for index, each in enumerate(block) if names & set(_bound(each))]
        is_top = block is self._script.tree.body
        place = max([*bound, self._end_of_imports() if is_top else 0])
        early = [each for each in block[:place] if self._script.deeds(each) != Deeds()]
        if early:
            return self._fails(f"`{text}`: it must stand above line {early[0].lineno}, where the batch is not known")
        if not place:
            return _Line(_first_line(block[0]) if block else 1, 0, 1, text)
        after = (block[place - 1].end_lineno or 0) + 1
        return _Line(after, block[0].col_offset, block[0].lineno, text)

    def _block_that_binds(self, names: set[str]) -> list[ast.stmt] | None:
        """The top level, or the body of the one function that has both the batch and all that needs `dp`."""
        top = self._script.tree.body
        if names <= {name for each in top for name in _bound(each)}:
            return top
        for function in self._script.functions.values():
            if names & {name for each in function.body for name in _bound(each)}:
                is_all = all(function.lineno <= line <= (function.end_lineno or 0) for line in self._used)
                return function.body if is_all and function.body[0].lineno > function.lineno else None
        return None

    def _fail(self, why: str) -> None:
        self._result.not_placed.append(why)

    def _fails(self, why: str) -> _Line | None:
        """No line, and why."""
        self._fail(why)
        return None

    def _import(self, simulate: int | None, made: _Line | None) -> None:
        body = self._script.tree.body
        end = self._end_of_imports()
        number = (body[end - 1].end_lineno or 0) + 1 if end else (_first_line(body[0]) if body else 1)
        lines = ["import tfscale", *([f"tfscale.simulate_replicas({simulate})"] if simulate else [])]
        self._edits.add_lines(number, 0, 1, lines)
        for each in lines:
            self._say(number, f"`{each}`")
        if made is not None:
            self._edits.add_lines(made.number, made.column, made.like, [made.text])
            self._say(made.number, f"`{made.text}`")

    def _end_of_imports(self) -> int:
        """How many statements stand above and among the first imports."""
        end = 0
        for index, each in enumerate(self._script.tree.body):
            if self._script.deeds(each) != Deeds():
                break
            parts = [inner for block in _blocks(each) for inner in block] or [each]
            is_text = index == 0 and isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
            if is_text or (not isinstance(each, _DEFINED) and all(isinstance(one, _IMPORTS) for one in parts)):
                end = index + 1
        return end

    def _hand_over(self, batch: ast.expr, search: BatchSearch) -> _Line | None:
        """A script with a strategy of its own keeps its scopes; the strategy is tfscale's."""
        if len(self._strategies) > 1:
            lines = ", ".join(str(call.lineno) for call in self._strategies)
            return self._fails(f"lines {lines}: the script makes several strategies; keep one")
        [call] = self._strategies
        kind = (self._script.dotted(call.func) or "").removeprefix("tensorflow.distribute.")
        if kind not in _HANDED_OVER:
            return self._fails(f"line {call.lineno}: tfscale does not train on a {kind}; take it out")
        per_replica = search.per_replica(batch)
        names = {node.id for node in ast.walk(per_replica or batch) if isinstance(node, ast.Name)}
        block = _block_of(self._script.tree, call)
        above = [each for each in (*self._script.tree.body, *block) if (each.end_lineno or 0) < call.lineno]
        if not names <= {name for each in above for name in _bound(each)}:
            return self._fails(f"line {call.lineno}: the batch, `{ast.unparse(batch)}`, is not known there")
        if not self._edits.replace(call, f"{self._name}.strategy"):
            return self._fails(f"line {call.lineno}: a strategy of several lines; write it in one")
        size = f"per_replica_batch={ast.unparse(per_replica)}" if per_replica else f"global_batch={ast.unparse(batch)}"
        devices = f", devices={ast.unparse(call)}" if call.args or call.keywords else ""
        holder = next(each for each in block if any(node is call for node in ast.walk(each)))
        first = _first_line(holder)
        return _Line(first, holder.col_offset, first, f"{self._name} = tfscale.DataParallel({size}{devices})")


def _strategies(script: Script) -> list[ast.Call]:
    """The calls that make a strategy of tf.distribute."""
    calls = [node for node in ast.walk(script.tree) if isinstance(node, ast.Call)]
    names = [(script.dotted(call.func) or "", call) for call in calls]
    return [call for name, call in names if name.startswith("tensorflow.distribute.") and name.endswith("Strategy")]


def _units(statements: Sequence[ast.stmt]) -> list[list[ast.stmt]]:
    """The statements of a block; those that share a line stay together."""
    units: list[list[ast.stmt]] = []
    for statement in statements:
        if units and units[-1][-1].end_lineno == _first_line(statement):
            units[-1].append(statement)
        else:
            units.append([statement])
    return units


def _blocks(statement: ast.AST) -> list[list[ast.stmt]]:
    """The blocks of a compound statement."""
    blocks = [getattr(statement, name, []) for name in _BLOCKS]
    blocks += [handler.body for handler in getattr(statement, "handlers", [])]
    blocks += [case.body for case in getattr(statement, "cases", [])]
    return [block for block in blocks if block]


def _block_of(tree: ast.Module, node: ast.AST) -> list[ast.stmt]:
    """The innermost block that a node stands in."""
    found = tree.body
    for each in ast.walk(tree):
        for block in _blocks(each):
            if any(inner is node for statement in block for inner in ast.walk(statement)):
                found = block
    return found


def _first_line(statement: ast.stmt) -> int:
    decorators = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(each.lineno for each in decorators)])


def _bound(statement: ast.AST) -> set[str]:
    """The names that a statement gives a value, itself or in its blocks; not those of functions that it defines."""
    if isinstance(statement, _DEFINED):
        return {statement.name}
    names = set()
    if isinstance(statement, ast.Name) and isinstance(statement.ctx, ast.Store):
        names.add(statement.id)
    if isinstance(statement, _IMPORTS):
        names |= {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
    for child in ast.iter_child_nodes(statement):
        names |= _bound(child)
    return names


def _all_names(tree: ast.Module) -> set[str]:
    arguments = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return arguments | {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}

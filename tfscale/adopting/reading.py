"""What does a statement of a script do: does it make what replicas share, does it train, both or neither?"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

TRAINING = {"fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"}
# A model on which only `predict` is called stays as it is.
PREPARED_FOR = {"fit", "evaluate", "train_on_batch", "test_on_batch"}
# What comes from these makes no variables. From a module that is not known it may.
_QUIET_MODULES = {
    *sys.stdlib_module_names,
    *(
        "absl",
        "cv2",
        "datasets",
        "h5py",
        "matplotlib",
        "numpy",
        "pandas",
        "PIL",
        "psutil",
        "scipy",
        "seaborn",
        "skimage",
    ),
    *("sklearn", "tensorflow_datasets", "tqdm", "wandb", "yaml"),
}
_QUIET = (
    *("keras.utils.", "keras.datasets.", "keras.callbacks.", "keras.config.", "keras.backend.", "keras.preprocessing."),
    *("keras.mixed_precision.", "keras.distribution.", "keras.ops.", "keras.saving.", "keras.random."),
    *("keras.initializers.", "keras.regularizers.", "keras.activations.", "keras.tree."),
)
_MAKING_METHODS = {"adapt", "add", "build", "compile", "compile_from_config"}
# Methods that make nothing, whatever they belong to.
_QUIET_METHODS = {
    *(
        "append",
        "batch",
        "cache",
        "extend",
        "format",
        "get_weights",
        "items",
        "join",
        "keys",
        "map",
        "numpy",
        "padded_batch",
    ),
    *(
        "prefetch",
        "repeat",
        "reset_state",
        "reset_states",
        "result",
        "save",
        "save_weights",
        "shuffle",
        "skip",
        "summary",
    ),
    *("take", "unbatch", "update", "values", "astype", "reshape", "mean", "sum", "get_layer", "export"),
}
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Deeds:
    """What a piece of code does.

    Args:
        makes: Whether it makes models, optimizers and the like.
        trains: Whether it trains, evaluates or predicts.
        calls: Whether it calls an object, such as a layer, which may be built by that.
    """

    makes: bool = False
    trains: bool = False
    calls: bool = False

    def __or__(self, other: Deeds) -> Deeds:
        return Deeds(self.makes or other.makes, self.trains or other.trains, self.calls or other.calls)


class Script:
    """What the names of a script stand for.

    Args:
        tree: Its syntax.
    """

    def __init__(self, tree: ast.Module):
        self.tree = tree
        self.imports = dict(_imports(tree))
        self.functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self.methods: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
        self._of_models: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        self._classes = {node.name: node for node in classes}
        self._of_keras = {node.name: self._is_of_keras(node, ()) for node in classes}
        self._own: dict[int, bool] = {}
        for node in classes:
            for inner in ast.walk(node):
                self._own[id(inner)] = self._own.get(id(inner), False) or self._of_keras[node.name]
            for each in node.body:
                if isinstance(each, _FUNCTIONS):
                    methods = self._of_models if self._of_keras[node.name] else self.methods
                    methods.setdefault(each.name, []).append(each)
        in_classes = {id(each) for node in classes for each in node.body}
        for inner in ast.walk(tree):
            if isinstance(inner, _FUNCTIONS) and id(inner) not in in_classes:
                self.functions.setdefault(inner.name, inner)
        self.values = _values(tree)
        self._known: dict[int, Deeds] = {}

    def dotted(self, node: ast.expr) -> str | None:
        """The full name behind an expression, "keras.layers.Dense"; None when it comes from no import."""
        if isinstance(node, ast.Name):
            return self.imports.get(node.id)
        if isinstance(node, ast.Attribute) and (base := self.dotted(node.value)) is not None:
            return f"{base}.{node.attr}".replace("tensorflow.keras.", "keras.")
        return None

    def is_in_keras_class(self, node: ast.AST) -> bool:
        """Whether a node stands in a class that Keras calls: a model, a layer, a callback."""
        return self._own.get(id(node), False)

    def trains(self, call: ast.Call) -> bool:
        """Whether a call is `model.fit(...)` or the like; not that of scikit-learn's, or of a class of the script."""
        method = call.func
        if not isinstance(method, ast.Attribute) or method.attr not in TRAINING:
            return False
        receiver = method.value
        if (isinstance(receiver, ast.Name) and receiver.id == "self") or ast.unparse(receiver) == "super()":
            return False
        if self.dotted(receiver) is not None:
            return False
        values = self.values.get(receiver.id, []) if isinstance(receiver, ast.Name) else [receiver]
        calls = [value.func for value in values if isinstance(value, ast.Call)]
        foreign = [self._is_foreign(function, method.attr) for function in calls]
        return not (foreign and all(foreign) and len(calls) == len(values))

    def deeds(self, node: ast.AST) -> Deeds:
        """What a statement does when it is run; what a function that it defines does is not run yet."""
        if isinstance(node, _FUNCTIONS):
            return self._union([*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)])
        if isinstance(node, ast.Lambda):
            return Deeds()
        if isinstance(node, ast.With | ast.AsyncWith) and any(self.is_tape(item.context_expr) for item in node.items):
            return Deeds(trains=True)
        if isinstance(node, ast.Call):
            return self._call(node)
        return self._union(list(ast.iter_child_nodes(node)))

    def is_tape(self, node: ast.expr) -> bool:
        """Whether an expression is `tf.GradientTape(...)`."""
        return isinstance(node, ast.Call) and (self.dotted(node.func) or "").endswith(".GradientTape")

    def has_tape(self, node: ast.AST) -> bool:
        """Whether there is a loop or a step by hand in it."""
        withs = [each for each in ast.walk(node) if isinstance(each, ast.With)]
        return any(self.is_tape(item.context_expr) for each in withs for item in each.items)

    def functions_called(self, node: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """The functions and plain methods of the script that a call inside of `node` leads to, directly."""
        found = []
        for call in _calls_of(node):
            found += self._targets(call)
        return found

    def _targets(self, call: ast.Call) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        if isinstance(call.func, ast.Name) and call.func.id in self.functions:
            return [self.functions[call.func.id]]
        if isinstance(call.func, ast.Attribute) and call.func.attr in self.methods:
            return self.methods[call.func.attr] if self.dotted(call.func) is None else []
        return []

    def _call(self, call: ast.Call) -> Deeds:
        if self.trains(call):
            # What its arguments make belongs to the training; a model that is made on the spot does not.
            receiver = call.func.value if isinstance(call.func, ast.Attribute) else call.func
            return Deeds(trains=True) | self.deeds(receiver)
        inner = self._union([call.func, *call.args, *(each.value for each in call.keywords)])
        if targets := self._targets(call):
            # The call itself does what the function does.
            return inner | self._union_of_functions(targets)
        trains = self._is_strategy_run(call.func) or self.is_step_of_model(call.func)
        return inner | Deeds(self._makes(call.func), trains, not trains and self._is_object(call.func))

    def _makes(self, function: ast.expr) -> bool:
        name = self.dotted(function)
        if name is not None:
            known, last = name.partition(".")[0], name.rpartition(".")[2]
            if known == "tensorflow":
                return (last[:1].isupper() and not name.startswith("tensorflow.data.")) or name.endswith(
                    "saved_model.load"
                )
            if known == "keras":
                return last == "FeatureSpace" or not name.startswith(_QUIET)
            return known not in _QUIET_MODULES
        if isinstance(function, ast.Name):
            return function.id in self._classes and not self._is_callback(function.id)
        return (
            isinstance(function, ast.Attribute)
            and function.attr in _MAKING_METHODS
            and not self._is_quiet(function.value)
        )

    def _is_object(self, function: ast.expr) -> bool:
        """Whether what is called is an object, or a method of one, that may be a layer."""
        if self.dotted(function) is not None:
            return False
        if isinstance(function, ast.Name):
            return function.id in self.values and not hasattr(builtins, function.id)
        if isinstance(function, ast.Attribute):
            return function.attr not in _QUIET_METHODS and not self._is_quiet(function.value)
        return True

    def _is_quiet(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether a value is an array, a file, text or the like: it comes from what makes no variables."""
        if isinstance(node, ast.Name):
            values = self.values.get(node.id, [])
            return bool(values) and depth < 5 and all(self._is_quiet(value, depth + 1) for value in values)
        if isinstance(node, ast.Call):
            base = node.func
            if isinstance(base, ast.Attribute) and self.dotted(base) is None:
                return self._is_quiet(base.value, depth)
            return not self._makes(base) and not self._is_object(base) and not self._targets(node)
        if isinstance(node, ast.Attribute | ast.Subscript):
            return self._is_quiet(node.value, depth)
        return not any(isinstance(each, ast.Call | ast.Name) for each in ast.walk(node)) or isinstance(
            node, ast.JoinedStr
        )

    def _is_strategy_run(self, function: ast.expr) -> bool:
        return (
            isinstance(function, ast.Attribute) and function.attr == "run" and "strategy" in ast.unparse(function.value)
        )

    def is_step_of_model(self, function: ast.expr, seen: tuple[str, ...] = ()) -> bool:
        """Whether a method is Keras's `train_step`, or one of a model of the script that computes gradients itself."""
        if not isinstance(function, ast.Attribute) or function.attr in seen or self.dotted(function) is not None:
            return False
        own = self._of_models.get(function.attr, [])
        calls = [call.func for method in own for statement in method.body for call in _calls_of(statement)]
        inner = [each for each in calls if isinstance(each, ast.Attribute) and ast.unparse(each.value) == "self"]
        seen = (*seen, function.attr)
        is_own = any(map(self.has_tape, own)) or any(self.is_step_of_model(each, seen) for each in inner)
        return is_own or (not own and function.attr == "train_step")

    def _union(self, nodes: Sequence[ast.AST]) -> Deeds:
        deeds = Deeds()
        for node in nodes:
            deeds |= self.deeds(node)
        return deeds

    def _union_of_functions(self, functions: Sequence[ast.FunctionDef | ast.AsyncFunctionDef]) -> Deeds:
        deeds = Deeds()
        for function in functions:
            if id(function) not in self._known:
                # One that calls itself does nothing more by that.
                self._known[id(function)] = Deeds()
                self._known[id(function)] = self._union(function.body)
            deeds |= self._known[id(function)]
        return deeds

    def _is_foreign(self, function: ast.expr, method: str) -> bool:
        name = self.dotted(function)
        if name is not None:
            return name.partition(".")[0] in _QUIET_MODULES
        if isinstance(function, ast.Name) and function.id in self._classes and not self._of_keras[function.id]:
            return any(isinstance(each, _FUNCTIONS) and each.name == method for each in self._classes[function.id].body)
        return False

    def _is_of_keras(self, node: ast.ClassDef, seen: tuple[str, ...]) -> bool:
        for base in node.bases:
            name = self.dotted(base) or ""
            if name.partition(".")[0] in ("keras", "tensorflow"):
                return True
            inner = self._classes.get(base.id) if isinstance(base, ast.Name) and base.id not in seen else None
            if inner is not None and self._is_of_keras(inner, (*seen, inner.name)):
                return True
        return False

    def _is_callback(self, name: str) -> bool:
        return any((self.dotted(base) or "").startswith("keras.callbacks.") for base in self._classes[name].bases)


def _calls_of(node: ast.AST) -> Iterator[ast.Call]:
    """The calls that are made when `node` is run."""
    if isinstance(node, _SCOPES):
        return
    if isinstance(node, ast.Call):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _calls_of(child)


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (
                    alias.asname or alias.name.partition(".")[0],
                    alias.name if alias.asname else alias.name.partition(".")[0],
                )
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}".replace("tensorflow.keras", "keras")


def _values(tree: ast.Module) -> dict[str, list[ast.expr]]:
    """What is assigned to each name, in all of the script."""
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for name, value in _pairs(target, node.value):
                    values.setdefault(name, []).append(value)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
            for name, value in _pairs(node.target, node.value):
                values.setdefault(name, []).append(value)
        elif isinstance(node, ast.For | ast.AsyncFor):
            for name, _ in _pairs(node.target, node.iter):
                values.setdefault(name, []).append(node.iter)
    return values


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List):
        parts = value.elts if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts) else None
        for index, each in enumerate(target.elts):
            yield from _pairs(each, parts[index] if parts else value)

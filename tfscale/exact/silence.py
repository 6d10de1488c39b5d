"""How does a traced step run twice with the same numbers, though it draws random ones?

In a copy of the graph every operation that draws is replaced by one that gives the same for each row, wherever in the
program it is drawn: dropout keeps all, noise is a constant. So rows for which a replica draws by itself can be compared
with those for which one device draws. An order that is drawn becomes another one, always the same: rows meet in it.
What is drawn with seeds that are written down is left: it is the same on every replica, and another one for all rows.
"""

from __future__ import annotations

import enum
import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfscale.framework.graphs import captured_from_outside, define_functions, definition_of

# A name is not given twice.
_COUNT = itertools.count()
# Multiples of it, less their integers, are in no order.
_GOLDEN = 0.6180339887498949


class Level(enum.Enum):
    """Which numbers stand for single ones that are drawn; for each row they are those in the middle."""

    MIDDLE = 0
    LOW = 1
    HIGH = 2
    LOWER = 3
    HIGHER = 4


# In the middle of what they draw, and not zero, so that whatever is multiplied by it is still seen; at both ends, where
# a batch is one in a thousand; and between, where one number picks what another one does not make as good as nothing.
_UNIFORM, _NORMAL, _INTEGER = (
    (0.5, 2.0**-10, 1 - 2.0**-10, 0.25, 0.75),
    (0.25, -3.0, 3.0, -0.7, 0.7),
    (1, 0, 2**20, 2, 3),
)
_Silent = Callable[..., tf.Tensor]


class _Draw(NamedTuple):
    silent: _Silent
    """Takes the level, the type of what is drawn and the inputs of the operation."""
    shape: int | None = None
    """Which of the inputs says how much is drawn, where that is all that says it."""


def _filled(values: Sequence[float], shape: int = 0) -> _Draw:
    """With the shape in this place of the inputs."""
    return _Draw(lambda level, dtype, *given: tf.fill(given[shape], tf.cast(values[level.value], dtype)), shape)


def _whole(shape: int, least: int) -> _Draw:
    """Of whole numbers: the least, one in the middle, the largest; and those between. The least follows the largest."""

    def silent(level: Level, dtype: tf.DType, *given: Any) -> tf.Tensor:
        first, last = given[least], given[least + 1] - 1
        quarter = (last - first + 1) // 4
        number = {
            Level.MIDDLE: first,
            Level.LOW: first + (last - first + 1) // 2,
            Level.HIGH: last,
            Level.LOWER: first + quarter,
            Level.HIGHER: last - quarter,
        }[level]
        return tf.cast(tf.fill(given[shape], number), dtype)

    return _Draw(silent, shape)


def _spread(shape: int, mean: int) -> _Draw:
    """The mean of what is drawn; the shape is that of the output."""
    return _Draw(lambda _, dtype, *given: tf.cast(tf.broadcast_to(given[mean], given[shape]), dtype))


def _repeated(_: Level, dtype: tf.DType, shape: Any, mean: Any, *__: Any) -> tf.Tensor:
    """The mean of what is drawn; the shape is that of the draws for each mean."""
    whole = tf.concat([shape, tf.shape(mean, out_type=shape.dtype)], 0)
    return tf.cast(tf.broadcast_to(mean, whole), dtype)


def _likeliest(_: Level, dtype: tf.DType, logits: Any, count: Any, *__: Any) -> tf.Tensor:
    best = tf.argmax(logits, axis=-1, output_type=dtype)[:, None]
    return tf.repeat(best, count, axis=1)


# Outputs are called `output`.
_DRAWS: Mapping[str, _Draw] = {
    "RandomUniform": _filled(_UNIFORM),
    "RandomStandardNormal": _filled(_NORMAL),
    "TruncatedNormal": _filled(_NORMAL),
    "RandomUniformInt": _whole(0, 1),
    "RandomShuffle": _Draw(lambda _, dtype, rows: tf.reverse(rows, [0])),
    "RandomGamma": _Draw(_repeated),
    "RandomPoissonV2": _Draw(_repeated),
    "Multinomial": _Draw(_likeliest),
    "StatefulUniform": _filled(_UNIFORM, 2),
    "StatefulStandardNormalV2": _filled(_NORMAL, 2),
    "StatefulTruncatedNormal": _filled(_NORMAL, 2),
    "StatefulUniformInt": _whole(2, 3),
    "StatefulUniformFullInt": _filled(_INTEGER, 2),
    "StatefulRandomBinomial": _spread(2, 3),
    "StatelessRandomUniform": _filled(_UNIFORM),
    "StatelessRandomNormal": _filled(_NORMAL),
    "StatelessTruncatedNormal": _filled(_NORMAL),
    "StatelessRandomUniformInt": _whole(0, 2),
    "StatelessRandomUniformFullInt": _filled(_INTEGER),
    "StatelessRandomUniformV2": _filled(_UNIFORM),
    "StatelessRandomNormalV2": _filled(_NORMAL),
    "StatelessTruncatedNormalV2": _filled(_NORMAL),
    "StatelessRandomUniformIntV2": _whole(0, 4),
    "StatelessRandomUniformFullIntV2": _filled(_INTEGER),
    "StatelessRandomBinomial": _spread(0, 2),
    "StatelessRandomGammaV2": _spread(0, 2),
    "StatelessRandomGammaV3": _spread(0, 4),
    "StatelessRandomPoisson": _spread(0, 2),
    "StatelessMultinomial": _Draw(_likeliest),
}
# What draws classes for `tf.nn.sampled_softmax_loss` and `tf.nn.nce_loss`, and says how often each is to be expected.
_SAMPLERS = frozenset(
    f"{kind}CandidateSampler"
    for kind in ("All", "FixedUnigram", "LearnedUnigram", "LogUniform", "ThreadUnsafeUnigram", "Uniform")
)
_EXPECTED = 0.5
DRAWS_FROM_STATE = _SAMPLERS | frozenset(
    ("ParameterizedTruncatedNormal", *(name for name in _DRAWS if not name.startswith("Stateless")))
)
"""Operations that draw from a state of their own, or of a `tf.random.Generator`: not alike on two replicas."""
# Of what they make of numbers that were drawn, the order is as random.
_KEEPS_ORDER = frozenset(("AddV2", "Cast", "Identity", "Mul", "Neg", "Reshape", "Squeeze", "Sub", "Transpose"))
_ORDERS = "TopKV2"
# What the inputs are called that an operation without a state draws from.
_SEEDS = ("seed", "key")
_CALLS = frozenset(("PartitionedCall", "StatefulPartitionedCall"))


def draws_one_number(concrete: Any) -> bool:
    """Whether a function draws a single number, of which a batch of any size has one.

    Args:
        concrete: A `ConcreteFunction`.
    """
    graph = concrete.graph.as_graph_def()
    scopes = [graph.node, *(function.node_def for function in graph.library.function)]
    return any(_is_one_number({each.name: each for each in nodes}, node) for nodes in scopes for node in nodes)


def shape_drawn(op: Any) -> list[int] | None:
    """The shape of what an operation of a graph draws, where it is a constant; else None.

    Args:
        op: `tf.Operation`.
    """
    draw = _DRAWS.get(op.type)
    shape = None if draw is None or draw.shape is None else tf.get_static_value(op.inputs[draw.shape])
    return None if shape is None else [int(each) for each in shape.flat]


def _is_one_number(by_name: Mapping[str, Any], node: Any) -> bool:
    """Whether a node draws a single number; a vector of one may be of a row."""
    draw = _DRAWS.get(node.op)
    if draw is None or draw.shape is None:
        return False
    maker = by_name.get(node.input[draw.shape].split(":")[0])
    return maker is not None and maker.op == "Const" and tf.make_ndarray(maker.attr["value"].tensor).size == 0


def silenced(
    concrete: Any, generators: Collection[tf.Variable] = (), level: Level = Level.MIDDLE
) -> Callable[..., Any]:
    """A function with the arguments and the results of `concrete` that draws nothing.

    Args:
        concrete: A `ConcreteFunction` that returns a list of tensors. It is returned itself where nothing is drawn.
        generators: The states from which Keras makes seeds, of which every replica makes its own.
        level: Of what stands for single numbers.
    """
    graph = concrete.graph.as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    if not any(node.op in _DRAWS or node.op in _SAMPLERS for node in nodes):
        return concrete
    handles = {id(variable.handle) for variable in generators}
    states = {name for name, value in captured_from_outside(concrete.graph).items() if id(value) in handles}
    scopes = _scopes(graph, states)
    # All are found before any is replaced.
    found = [(scope, *_found(scope)) for scope in scopes]
    for scope, orders, draws in found:
        _silence(scope, orders, draws, level)
    _rename_functions(graph)
    define_functions(graph.library.function)

    @tf.function(autograph=False)
    def function(*values: Any) -> Any:
        given = dict(zip((tensor.op.name for tensor in concrete.inputs), values, strict=True))
        names = [tensor.name for tensor in concrete.outputs]
        return tf.graph_util.import_graph_def(graph, input_map=given, return_elements=names, name="")

    def call(*arguments: Any) -> Any:
        # Asked for at each call: the key of a collective is another one each time, and is counted when it is asked for.
        captured = concrete.captured_inputs
        return function(*tf.nest.flatten(arguments, expand_composites=True), *captured)

    return call


def _rename_functions(graph: Any) -> None:
    """Gives the functions of a graph names of their own: by the old ones TensorFlow knows them as they were."""
    new = {each.signature.name: f"{each.signature.name}_silenced{next(_COUNT)}" for each in graph.library.function}
    for function in graph.library.function:
        function.signature.name = new[function.signature.name]
    for node in (*graph.node, *(node for function in graph.library.function for node in function.node_def)):
        node.op = new.get(node.op, node.op)
        for attribute in node.attr.values():
            for function in (attribute.func, *attribute.list.func):
                if function.name in new:
                    function.name = new[function.name]
    for gradient in graph.library.gradient:
        gradient.function_name = new.get(gradient.function_name, gradient.function_name)
        gradient.gradient_func = new.get(gradient.gradient_func, gradient.gradient_func)


class _Scope:
    """The nodes of a graph, or of one of its functions.

    Args:
        nodes: To which others may be added.
        states: The names of those that give the states of generators.
        results: What a function returns, by name, or None of a graph.
    """

    def __init__(self, nodes: Any, states: Collection[str] = (), *, results: Any = None):
        self.nodes = nodes
        self.states = states
        self.results = results
        self.by_name = {node.name: node for node in nodes}
        self.given: dict[str, list[tuple[_Scope, str]]] = {}
        """What the arguments of a function are where it is called; of a condition's or a loop's that is not known."""


def _scopes(graph: Any, states: Collection[str]) -> list[_Scope]:
    functions = {each.signature.name: each for each in graph.library.function}
    scopes = {name: _Scope(each.node_def, results=each.ret) for name, each in functions.items()}
    found = [_Scope(graph.node, states), *scopes.values()]
    for scope in found:
        for node in scope.nodes:
            called = node.attr["f"].func.name if node.op in _CALLS else ""
            if called in functions:
                for argument, source in zip(functions[called].signature.input_arg, node.input, strict=False):
                    scopes[called].given.setdefault(argument.name, []).append((scope, source))
    return found


def _found(scope: _Scope) -> tuple[list[Any], list[Any]]:
    """What puts drawn numbers into an order, and what draws."""
    orders = [node for node in scope.nodes if node.op == _ORDERS and _is_drawn(scope.by_name, node.input[0])]
    draws = [node for node in scope.nodes if node.op in _DRAWS and not _has_seed_by_hand(scope, node)]
    return orders, [*draws, *(node for node in scope.nodes if node.op in _SAMPLERS)]


def _silence(scope: _Scope, orders: list[Any], draws: list[Any], level: Level) -> None:
    is_function = scope.results is not None
    for node in orders:
        node.input[0] = _insert(scope.nodes, node, _in_no_order, 0, is_function=is_function)
    for node in draws:
        dtypes = _dtypes(node, "output_arg")
        own = level if _is_one_number(scope.by_name, node) else Level.MIDDLE
        made = [functools.partial(_DRAWS[node.op].silent, own, dtypes[0])] if node.op in _DRAWS else _sampled(node)
        if is_function and len(made) > 1:
            _rename_outputs(scope, node)
        _become_identity(node, [_insert(scope.nodes, node, each, is_function=is_function) for each in made], dtypes)


def _sampled(node: Any) -> list[Callable[..., tf.Tensor]]:
    """What a sampler of classes gives: the first ones, each of which was to be expected as often."""
    count = node.attr["num_sampled"].i
    return [
        lambda _: tf.range(count, dtype=tf.int64),
        lambda true_classes: tf.fill(tf.shape(true_classes), _EXPECTED),
        lambda _: tf.fill([count], _EXPECTED),
    ]


def _rename_outputs(scope: _Scope, node: Any) -> None:
    """Has whoever takes an output of a node ask for that of an `IdentityN`: inside of a function it goes by a name."""
    labels = [each.name for each in definition_of(node.op).output_arg]
    new = {f"{node.name}:{label}:0": f"{node.name}:output:{place}" for place, label in enumerate(labels)}
    for each in scope.nodes:
        for place, source in enumerate(each.input):
            each.input[place] = new.get(source, source)
    for name, source in scope.results.items():
        scope.results[name] = new.get(source, source)


def _in_no_order(numbers: Any, *_: Any) -> tf.Tensor:
    """Numbers in the place of others, the same in each row, of which the order is neither rising nor falling."""
    places = tf.range(1, tf.shape(numbers)[-1] + 1)
    ramp = tf.math.floormod(tf.cast(places, tf.float64) * _GOLDEN, 1.0)
    return tf.broadcast_to(tf.cast(ramp, numbers.dtype), tf.shape(numbers))


def _is_drawn(by_name: Mapping[str, Any], source: str) -> bool:
    """Whether nothing but random numbers and constants is in what an input gets."""
    ends = list(_ends(by_name, source))
    return all(end is not None for end in ends) and any(end in _DRAWS for end in ends)


def _ends(by_name: Mapping[str, Any], source: str) -> Iterator[str | None]:
    """The operations from which an input comes through those that keep an order; None for anything but draws."""
    node = by_name.get(source.split(":")[0])
    if node is not None and node.op in _KEEPS_ORDER:
        # What follows is a shape.
        count = 1 if node.op in ("Reshape", "Transpose") else len(node.input)
        for each in itertools.islice((name for name in node.input if not name.startswith("^")), count):
            yield from _ends(by_name, each)
    else:
        yield node.op if node is not None and (node.op in _DRAWS or node.op == "Const") else None


def _has_seed_by_hand(scope: _Scope, node: Any) -> bool:
    """Whether a draw has a seed that is made of constants, of variables or of the batch alone."""
    names = [each.name for each in definition_of(node.op).input_arg]
    left = [(scope, source) for name, source in zip(names, node.input, strict=False) if name in _SEEDS]
    is_stateless, met = bool(left), set[tuple[int, str]]()
    while left:
        scope, source = left.pop()
        name = source.removeprefix("^").split(":")[0]
        if (id(scope), name) in met:
            continue
        met.add((id(scope), name))
        maker = scope.by_name.get(name)
        if maker is None and name in scope.given:
            left += scope.given[name]
            continue
        # What comes into a condition or a loop is not known.
        if maker is None or name in scope.states or maker.op in _DRAWS or maker.op.startswith("Rng"):
            return False
        left += [(scope, each) for each in maker.input if not each.startswith("^")]
    return is_stateless


def _dtypes(node: Any, arguments: str) -> list[tf.DType]:
    """Of the inputs (`"input_arg"`) or the outputs (`"output_arg"`) of a node."""
    given = getattr(definition_of(node.op), arguments)
    return [tf.as_dtype(node.attr[each.type_attr].type if each.type_attr else each.type) for each in given]


def _insert(nodes: Any, node: Any, silent: Callable[..., tf.Tensor], *places: int, is_function: bool) -> str:
    """Adds the operations of `silent` for the inputs of a node, or those in these places; returns its output."""
    taken = len(nodes)
    dtypes = _dtypes(node, "input_arg")
    with tf.Graph().as_default() as graph:
        given = [tf.compat.v1.placeholder(dtype) for dtype in dtypes]
        output = silent(*(given[place] for place in places or range(len(given))))
    inputs = {placeholder.op.name: node.input[place] for place, placeholder in enumerate(given)}

    def named(tensor_name: str) -> str:
        """As the inserted output is called where it goes in: inside of a function by the name of the output."""
        name, _, place = tensor_name.partition(":")
        if name in inputs:
            return inputs[name]
        label = f"{node.name}/silenced{taken}/{name}"
        if not is_function:
            return f"{label}:{place or 0}"
        outputs = definition_of(graph.get_operation_by_name(name).type).output_arg
        return f"{label}:{outputs[int(place or 0)].name}:0"

    for each in graph.as_graph_def().node:
        if each.name not in inputs:
            added = nodes.add()
            added.CopyFrom(each)
            added.name = f"{node.name}/silenced{taken}/{each.name}"
            added.device = node.device
            del added.input[:]
            added.input.extend(named(name) for name in each.input if not name.startswith("^"))
    return named(output.name)


def _become_identity(node: Any, sources: list[str], dtypes: list[tf.DType]) -> None:
    kept = [name for name in node.input if name.startswith("^")]
    node.op = "Identity" if len(sources) == 1 else "IdentityN"
    del node.input[:]
    node.input.extend([*sources, *kept])
    for name in list(node.attr):
        if not name.startswith("_"):
            del node.attr[name]
    types = [dtype.as_datatype_enum for dtype in dtypes]
    if len(types) == 1:
        node.attr["T"].type = types[0]
    else:
        node.attr["T"].list.type.extend(types)

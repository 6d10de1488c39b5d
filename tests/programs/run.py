"""One run of one program, in a process of its own that was forked for it."""

import ast
import re
import sys
import traceback
import types
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.gpu.devices import cut_devices, take_rows_as_on_gpus
from tests.programs import noise
from tests.programs.outcome import Outcome, Setting
from tests.programs.program import Program
from tests.programs.readme_lines import in_float64, with_lines_of_init, with_readme_lines
from tests.programs.variants import with_arguments
from tfscale import TfscaleError


def script_of(program: Program, setting: Setting) -> str:
    """The source that is run."""
    tree = program.tree
    if setting.replicas and setting.init:
        tree = with_lines_of_init(program, setting.replicas)
    elif setting.replicas:
        tree = with_readme_lines(
            tree,
            setting.replicas,
            one_scope=setting.one_scope,
            on_gpu=bool(setting.gpu),
            on_workers=setting.workers > 1,
            parallel=setting.parallel,
        )
    tree = with_arguments(tree, setting.arguments)
    return ast.unparse(in_float64(tree) if setting.float64 else tree) + "\n"


def run(program: Program, setting: Setting, directory: Path) -> Outcome:
    """Runs a program in this process, once; TensorFlow must not have started in it."""
    keras.config.set_floatx("float64" if setting.float64 else "float32")
    keras.config.disable_interactive_logging()
    if setting.gpu:
        cut_devices(max(setting.replicas, 1), tf32=setting.gpu == "tf32", is_shared=True)
    if setting.ahead:
        take_rows_as_on_gpus()
    if program.random and not setting.drawn:
        noise.silence()
    # A file, because AutoGraph and tracebacks look up the source.
    path = directory / f"{program.name}.py"
    path.write_text(script_of(program, setting))
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    sys.modules["__main__"] = module
    try:
        exec(compile(path.read_text(), str(path), "exec"), vars(module))
        return Outcome(values=collect(vars(module)))
    except Exception as error:
        traceback.print_exc()
        name = type(error).__name__
        said = _first_line(str(error)).removeprefix(f"{name}: ")
        return Outcome(error=f"{name}: {said}", refused=isinstance(error, TfscaleError))


def collect(names: dict[str, Any]) -> dict[str, np.ndarray]:
    """The numbers that a script's names hold: weights, logs, predictions, results."""
    values: dict[str, np.ndarray] = {}
    for name, value in names.items():
        if not name.startswith("_"):
            for where, number in _numbers(value):
                array = np.asarray(number)
                if array.dtype.kind in "fiu":
                    values[name + where] = array
    return values


def _numbers(value: Any) -> list[tuple[str, Any]]:
    """(where in `value`, numbers) for all that is comparable."""
    if isinstance(value, keras.Layer):
        # Not by path: that counts the layers which were made before.
        return [(f" weight {i} {w.name}", keras.ops.convert_to_numpy(w)) for i, w in enumerate(value.weights)]
    if isinstance(value, keras.callbacks.History):
        return _numbers(value.history)
    if isinstance(value, keras.Variable | tf.Variable | tf.Tensor):
        return [("", value.numpy())] if value.dtype not in (tf.string, "string") else []
    if isinstance(value, dict):
        return [(f"[{key!r}]{where}", each) for key in value for where, each in _numbers(value[key])]
    if isinstance(value, list | tuple):
        if all(isinstance(each, int | float | np.number) for each in value):
            return [("", np.asarray(value))]
        return [(f"[{i}]{where}", each) for i, one in enumerate(value) for where, each in _numbers(one)]
    return [("", value)] if isinstance(value, int | float | np.number | np.ndarray) else []


def _first_line(message: str) -> str:
    """What a message says first. TensorFlow and Keras put where it was before what it was."""
    lines = [line.strip() for line in re.sub(r"\x1b\[\d*m", "", message).splitlines() if line.strip()]
    if lines and lines[0].startswith(("Exception encountered when calling", "Graph execution error:")):
        lines = [line for line in lines[1:] if not line.startswith(("Detected at node", "File ", "<stack"))]
    if lines and lines[0].startswith("in user code:"):
        lines = [line for line in lines if re.match(r"[\w.]*(Error|Exception): ", line)] or lines
    return lines[0][:300] if lines else ""

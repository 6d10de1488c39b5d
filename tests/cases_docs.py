"""Runs what the documents show, with small stand-ins for what a reader has: data, a model."""

from __future__ import annotations

import ast
import builtins
import contextlib
import io
import os
import tempfile
from typing import Any

# In the order in which they are made. The code of a document may make any of them itself.
STAND_INS = {
    "np": "import numpy as np",
    "tf": "import tensorflow as tf",
    "keras": "import keras",
    "tfscale": "import tfscale",
    "images": "images = np.linspace(0, 1, 300 * 4).reshape(300, 4).astype('float32')",
    "labels": "labels = np.arange(300) % 3",
    "test_images": "test_images = images[:40]",
    "test_labels": "test_labels = labels[:40]",
    "augment": "augment = lambda example: (example[0] * 0.9, example[1])",
    "test": "test = tf.data.Dataset.from_tensor_slices((images[:40], labels[:40]))",
    "build_model": (
        "build_model = lambda: keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), "
        "keras.layers.BatchNormalization(), keras.layers.Dense(3, activation='softmax')])"
    ),
    "dp": "dp = tfscale.DataParallel(global_batch=256)",
    "model": (
        "with dp.scope():\n"
        "    model = dp.prepare(build_model())\n"
        "    model.compile('sgd', 'sparse_categorical_crossentropy')"
    ),
    "train": "train = dp.dataset((images, labels))",
    "data": "data = dp.dataset((images, labels))",
}
UNBATCHED = "train = tf.data.Dataset.from_tensor_slices((images, labels))"
REPLICAS = 4


def run(code: str) -> str:
    """Runs a block of a document in an empty directory; returns what it prints."""
    import tfscale

    tfscale.simulate_replicas(REPLICAS)
    stand_ins = STAND_INS | ({"train": UNBATCHED} if "train.batch(" in code else {})
    source = "\n".join([*_needed(code, stand_ins), code])
    printed, before = io.StringIO(), os.getcwd()
    with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(printed):
        os.chdir(directory)
        try:
            exec(compile(source, "document", "exec"), {"__name__": "__main__"})
        finally:
            os.chdir(before)
    return printed.getvalue()


def _needed(code: str, stand_ins: dict[str, str]) -> list[str]:
    """The stand-ins for names that the code uses before it makes them, and for what those use."""
    needed: set[str] = set()
    left = [code]
    while left:
        more = _free_names(left.pop()) - needed
        unknown = more - stand_ins.keys()
        if unknown:
            raise NameError(f"no stand-in for {sorted(unknown)}")
        needed |= more
        left += [stand_ins[name] for name in more]
    return [line for name, line in stand_ins.items() if name in needed]


def _free_names(code: str) -> set[str]:
    nodes: list[Any] = list(ast.walk(ast.parse(code)))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    made = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    made |= {(alias.asname or alias.name) for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    made |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return {node.id for node in names} - made - set(vars(builtins))

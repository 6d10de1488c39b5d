"""What of a script does one worker alone, since it asks for its rank; and what should one alone do, which all would?"""

from __future__ import annotations

import ast
import re

from tfscale.adopting.reading import Script

_VARIABLES = re.compile(r"TF_CONFIG|(\w+_)?(RANK|PROCID|NODEID)|JOB_COMPLETION_INDEX|TASK_INDEX")
_WORDS = re.compile(
    r"_*(is_|am_|get_)?(the_)?(local_|global_|world_|node_|process_|worker_|my_)?"
    r"(chief|rank|main_process|process_index|process_id|task_id|task_index|task_type|worker_id|worker_index)"
)
# Keras's callbacks that write files (tfscale/recovery/chief_only.py, which imports Keras).
_WRITE_FILES = ("BackupAndRestore", "CSVLogger", "ModelCheckpoint", "TensorBoard")
# How far a value is followed through other names.
_DEPTH = 5


def branches_of_one_worker(script: Script) -> list[ast.If]:
    r"""Returns each `if` that asks which worker this is, the outermost of several.

    Args:
        script: The script.

    Example:
        >>> import ast
        >>> from tfscale.adopting.one_worker import branches_of_one_worker
        >>> from tfscale.adopting.reading import Script
        >>> text = "first = os.environ['RANK'] == '0'\nif first:\n    print()\nif rate > 1:\n    print()\n"
        >>> [each.lineno for each in branches_of_one_worker(Script(ast.parse(text)))]
        [2]
    """
    found = [each for each in ast.walk(script.tree) if isinstance(each, ast.If) and _says_rank(script, each.test)]
    inner = {id(node) for each in found for node in ast.walk(each) if node is not each}
    return [each for each in found if id(each) not in inner]


def remarks_on_files(script: Script, name: str) -> list[str]:
    """Says of callbacks with which all workers of a cluster would write the same files what to do.

    Args:
        script: The script.
        name: What the script calls its `DataParallel`.
    """
    calls = [node for node in ast.walk(script.tree) if isinstance(node, ast.Call)]
    named = [(node.lineno, (script.dotted(node.func) or "").rpartition(".")[2]) for node in calls]
    return [
        f"line {line}: on several workers every one has a `{callback}`, and all write to its path: give `fit` "
        f"`callbacks={name}.callbacks([...])`, with which the chief alone writes"
        for line, callback in named
        if callback in _WRITE_FILES
    ]


def _says_rank(script: Script, node: ast.AST, depth: int = 0) -> bool:
    """Whether the rank of a worker has a part in a value."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and _VARIABLES.fullmatch(node.value) is not None
    if isinstance(node, ast.Attribute) and _WORDS.fullmatch(node.attr):
        return True
    if isinstance(node, ast.Name):
        values = script.values.get(node.id, [])
        # A rank that is a number of the script's is the rank of something else.
        if _WORDS.fullmatch(node.id) and not (values and all(isinstance(each, ast.Constant) for each in values)):
            return True
        function = script.functions.get(node.id)
        followed = [*values, *(function.body if function is not None else [])]
        return depth < _DEPTH and any(_says_rank(script, each, depth + 1) for each in followed)
    return any(_says_rank(script, each, depth) for each in ast.iter_child_nodes(node))

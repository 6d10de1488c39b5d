"""Why is the first step most likely not that of one replica, and what is to be done?"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from tfscale.errors import ParityError, TfscaleError
from tfscale.training.check.step_differences import Difference

_SHOWN = 3
# Characters of somebody else's error.
_SHOWN_OF_ERROR = 500
OF_LATER = (
    "\nIt is that of one replica as it begins, and not with other values of counters, weights or flags in its state, "
    "with another number drawn for the whole batch, "
    "or on rows that are to each other what those of a later batch may be: alike, of a few kinds, near each other, one "
    "much larger than the others."
)


def describe_difference(
    differences: Sequence[Difference],
    what: str,
    num_replicas: int,
    num_rows: int,
    *,
    in_parts: bool = False,
    is_eager: bool = False,
) -> str:
    """The text of the error: what differs, why most likely, and the way out.

    Args:
        differences: What the step computed first, then what it left.
        what: The step, such as "first step of model 'a'".
        num_replicas: Of the job.
        num_rows: On which the step was tried.
        in_parts: Whether its replicas took their rows in parts.
        is_eager: Whether it is run eagerly.
    """
    ordered = sorted(differences, key=lambda row: _ORDER.index(row.kind))
    shown = "\n".join(f"  {_line(row)}" for row in ordered[:_SHOWN])
    more = f"\n  and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
    cause = _OF_PARTS if in_parts else next(text for fits, text in _RULES if fits(ordered))
    unlike = "is not that of one pass" if in_parts else f"on {num_replicas} replicas is not that of one replica"
    return (
        f"The {what} {unlike}. "
        f"It was tried on {num_rows} rows; nothing was updated by it.\n"
        f"Received:\n{shown}{more}\n"
        f"Likeliest cause: {cause}{_IN_A_GRAPH if is_eager else ''}"
    )


@contextlib.contextmanager
def failing_when_divided(what: str, shares: Sequence[int], num_rows: int) -> Iterator[None]:
    """Says so where a step fails that one replica can take.

    Args:
        what: The step.
        shares: Rows of each replica here.
        num_rows: On which the step was tried.

    Raises:
        ParityError: In place of an error that is not tfscale's.
    """
    try:
        yield
    except TfscaleError:
        raise
    except Exception as error:
        raise ParityError(
            f"The {what} runs on one replica, and not when it is divided. "
            f"It was tried on {num_rows} rows; nothing was updated by it.\n"
            f"Received: {type(error).__name__} on shares of {', '.join(map(str, shares))} rows: "
            f"{str(error)[:_SHOWN_OF_ERROR]}{_cause_of_failure(error)}"
        ) from error


def _cause_of_failure(error: Exception) -> str:
    """Why a step most likely fails that one replica can take, and the way out: a line more of the error, or nothing.

    Args:
        error: What it ended in. Shapes that do not fit are of these kinds.
    """
    if not isinstance(error, ValueError | tf.errors.InvalidArgumentError):
        return ""
    return (
        "\nLikeliest cause: a number of rows that the code takes for granted (`tf.ones((batch_size, ...))`, "
        "`tf.reshape(x, (batch_size, ...))`, groups of rows), where a replica has fewer; or the first "
        "dimension of the data is not that of the examples. Write `tf.shape(x)[0]` for the number of rows. "
        "Let the examples come first in every tensor of a batch. What needs all rows: tfscale.gather_rows(x)."
    )


_IN_A_GRAPH = (
    " Or leave `run_eagerly=True` out: in a graph tfscale gives the layers, losses and logs in which rows meet those "
    "of all replicas where it can, and the step may be that of one replica as it stands."
)
_OF_PARTS = (
    "`micro_batch` and `logical_replicas` run the rows of a device in parts, one after the other, and in a loss, layer "
    "or metric of your own the rows of a batch meet, or are added up where the rest is a mean. For a sum, write "
    "tfscale.sum_over_examples(loss) around it; what needs all rows at the same time cannot be run so: leave these "
    "arguments out, or compute a metric of `predict`."
)
_ORDER = ("add_loss", "loss", "gradients", "metric", "log", "prediction", "variable", "weight")
# Kinds of which the label says what it is.
_NAMED = ("variable", "weight", "log", "prediction", "loss")


def _line(row: Difference) -> str:
    what = row.label if row.kind in _NAMED else f"{row.kind} of {row.label}"
    at = f" for {row.name!r}" if row.kind == "gradients" else ""
    if math.isnan(row.ours) and math.isnan(row.reference):
        return f"{what}{at}: of another shape than on one replica, or in one of the two runs only"
    return f"{what}{at}: {row.ours:.6g} where one replica has {row.reference:.6g}"


def _only(*kinds: str) -> Callable[[Sequence[Difference]], bool]:
    return lambda rows: {row.kind for row in rows} <= set(kinds)


def _none(*kinds: str) -> Callable[[Sequence[Difference]], bool]:
    return lambda rows: not {row.kind for row in rows} & set(kinds)


_RULES: tuple[tuple[Callable[[Sequence[Difference]], bool], str], ...] = (
    (
        _only("prediction"),
        "a layer, or `predict_step`, in which the rows of a batch meet (`x - mean(x, 0)`, a softmax over rows). "
        "Compute it of tfscale.gather_rows(x), which are the rows of all replicas.",
    ),
    (
        _only("metric", "log"),
        "a log that is neither a mean nor a sum over the examples, nor the result of a metric. Let a keras.metrics "
        "object count it, compute it of tfscale.gather_rows(x), or leave it out of the logs.",
    ),
    (
        _only("variable", "log", "metric"),
        "the step, or a layer, assigns to a variable, or keeps in Python, what it computed of its own rows. Compute it "
        "of tfscale.gather_rows(x), which are the rows of all replicas.",
    ),
    (
        _only("weight"),
        "what the optimizer gets is equal as a whole, and what it makes of it is not: a gradient of single rows, some "
        "of which every replica has (classes that `tf.nn.sampled_softmax_loss` or `tf.nn.nce_loss` draws), under an "
        "optimizer that squares each row it gets, as Adam does. Give it the gradient in full, "
        "`tf.convert_to_tensor(gradient)`, or take an optimizer that does not square.",
    ),
    (
        _none("loss", "add_loss", "log", "metric"),
        "the losses are equal and the gradients are not: code between tape and optimizer that is not linear, such as "
        "clipping by a global norm, or rows of a batch that meet on the way back, as in a `tf.custom_gradient` that "
        "takes a norm of its slope. For the first, write `gradients = tfscale.sum_gradients(tape.gradient(loss, "
        "variables))` before it; for the second, let it take that norm of tfscale.gather_rows(slope), the rows of all "
        "replicas.",
    ),
    (
        lambda rows: True,
        "code in which the rows of a batch meet (contrastive losses, pairs, `x - mean(x, 0)`, a ratio of sums), or a "
        "loss that adds a sum over the examples to a mean. For the first, compute it of tfscale.gather_rows(x), the "
        "rows of all replicas; for the second, write tfscale.sum_over_examples(loss) around the sum. In a script for "
        "tf.distribute, drop `tf.nn.scale_regularization_loss` and divisions by the number of replicas: a step is told "
        "that there is one. "
        '`prepare(model, check="off")` trains without this check, and with another result than one replica\'s.',
    ),
)

"""What does the graph of a step show that its numbers do not yet, and what is to be done?"""

from __future__ import annotations

from collections.abc import Sequence

_SHOWN = 3
_DIVIDES = "divides on each replica by a sum over its own rows"
_SAME = "though it happens to give the same for these rows."
_INSTEAD = "Compute that of tfscale.gather_rows(x), which are the rows of all replicas."


def describe_hidden(assigned: Sequence[str], decided: Sequence[str], noise: Sequence[str], what: str) -> str:
    """The text of the error where each replica goes by numbers of its own, and it made no difference yet; or nothing.

    Args:
        assigned: Names of the variables to which each assigns its own.
        decided: Names of the operations that go by a threshold.
        noise: Names of those that draw what is added to gradients.
        what: The step, such as "first step of model 'a'".
    """
    if assigned:
        effect = "leaves replicas with other values of a variable than one has"
        received = f"{_names(assigned)}, assigned from what each replica computed of its own rows"
    elif decided:
        effect = "asks on each replica whether a number of the batch lies beyond a threshold"
        received = f"{_names(decided)}, of what each replica computed of its own rows (a clipped norm, a limited loss)"
    elif noise:
        return (
            f"The {what} adds to gradients what each replica draws by itself: of several replicas' noise the mean is "
            "less than that of one. Nothing was updated by it.\n"
            f"Received: {_names(noise)}. Draw it by `keras.random` with a `SeedGenerator`, beside the calls of layers, "
            "or by `tf.random.stateless_normal` with a seed of `optimizer.iterations`, which is the same on all."
        )
    else:
        return ""
    return (
        f"The {what} {effect}, {_SAME} Nothing was updated by it.\n"
        f'Received: {received}. {_INSTEAD} `prepare(model, check="off")` trains without this check.'
    )


def describe_plain(plain: Sequence[str], what: str) -> str:
    """The text of the error where a step goes by a plain number that was made of the number of replicas; or nothing.

    Args:
        plain: What it takes so.
        what: The step, such as "first step of model 'a'".
    """
    if not plain:
        return ""
    return (
        f"The {what} takes for a plain number what the script made of `strategy.num_replicas_in_sync`: it would be "
        "another step for each number of replicas. Nothing was updated by it.\n"
        f"Received: {_names(plain)}. Write `loss / strategy.num_replicas_in_sync` in the step, or divide by the whole "
        "batch."
    )


def describe_doubt(divided: Sequence[str], what: str) -> str:
    """The text where each replica divides by a sum of its own, which may be the same for any batch; or nothing.

    Args:
        divided: Names of the operations that divide by it.
        what: The step, such as "first step of model 'a'".
    """
    received = f"{_names(divided)}, of what each replica computed of its own rows (a sum of weights or of a mask)"
    return f"The {what} {_DIVIDES}, {_SAME}\nReceived: {received}. {_INSTEAD}" if divided else ""


def is_doubt(text: str) -> bool:
    """Whether a text is one of `describe_doubt`: without another way to divide the step it is no error."""
    return _DIVIDES in text


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more

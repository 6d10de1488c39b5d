"""When is it worth it to trace a step once more, so that one call takes several?

A call of several steps is a function of its own: the step is traced twice for it, and optimised as a loop. For a large
model, or a short `fit`, that costs more than the host's share of all steps together.
"""

from __future__ import annotations

import dataclasses

# Its first call, as a multiple of that of one step: 1.5 to 3.7 on CPUs, from a small MLP to a convnet of 20 layers.
_TRACE_RATIO = 3.0
# What is saved is a guess about steps that are still to come: a callback may end `fit` before.
_GAIN = 1.5


@dataclasses.dataclass
class TracedSteps:
    """What is known of one function of Keras's, over all passes that it was called in."""

    first_call_s: float | None = None
    """Seconds of its first call, with the trace."""
    num_steps: int = 0
    is_joined: bool = False
    """Whether there is a trace for several steps."""
    can_join: bool = False
    """Whether it was tried, and is good."""
    cannot_join: bool = False


def steps_to_come(done: int, num_steps: int | None, *, passes_after: int, earlier: int) -> int:
    """How many steps will be made with a function, as far as can be told.

    Args:
        done: Steps of this pass over the data that are made.
        num_steps: Of each pass; None where only the data know, which are taken to be in the middle.
        passes_after: That follow this one in the same `fit`.
        earlier: Steps that former calls of `fit` or `evaluate` made with the function: as many are expected of later
            ones.

    Example:
        >>> from tfscale.training.call.joining import steps_to_come
        >>> steps_to_come(4, 100, passes_after=2, earlier=0)
        296
        >>> steps_to_come(64, None, passes_after=0, earlier=0)
        64
        >>> steps_to_come(100, 100, passes_after=0, earlier=500)
        500
    """
    length = 2 * done if num_steps is None else num_steps
    return max(length - done, 0) + passes_after * length + earlier


def pays_to_join(host_s: float, num_steps: int, first_call_s: float) -> bool:
    """Whether calls of several steps save clearly more than their trace costs.

    Args:
        host_s: The host's part of a call of one step, in seconds.
        num_steps: Steps that are still to come.
        first_call_s: What the first call took, with the trace of one step.

    Example:
        >>> from tfscale.training.call.joining import pays_to_join
        >>> pays_to_join(host_s=0.0005, num_steps=10_000, first_call_s=0.4)
        True
        >>> pays_to_join(host_s=0.0005, num_steps=1_000, first_call_s=0.4)
        False
        >>> pays_to_join(host_s=0.001, num_steps=10_000, first_call_s=5.0)
        False
    """
    return host_s * num_steps >= _GAIN * _TRACE_RATIO * first_call_s

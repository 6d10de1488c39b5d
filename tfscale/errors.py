"""The errors tfscale raises.

Every message has three parts: the rule that was broken, what was received, and the way out. It
ends with the place in the documentation that its class has. An error about the value of an argument is also a
`ValueError`; an error about what the script met in the world (the machine, the cluster, the installed versions) is
also a `RuntimeError`.
"""

import re
from typing import Any

PAGE = "docs/errors.md"
"""Where the documentation has the errors, a heading for each class; a path, since the site has no fixed address."""

_MOST_CHARACTERS = 2000
# The rule and what was received are at the begin, the way out is at the end.
_BEGIN = 1400
_REFERENCE = re.compile(rf"\s?See {re.escape(PAGE)}#[a-z]+\.")


class TfscaleError(Exception):
    """The base of every error that tfscale raises on purpose.

    Example:
        >>> import tfscale
        >>> try:
        ...     tfscale.resolve_cluster({"TF_CONFIG": "worker 0 of 2"})
        ... except tfscale.TfscaleError as error:
        ...     print(type(error).__name__)
        ClusterError
    """

    # What is raised in a function that AutoGraph converts stays what it is; without this it becomes a StagingError.
    ag_pass_through = True

    def __init__(self, *args: Any):
        # What another error said may be a part of this one's message, which has one reference, at its end.
        super().__init__(*(_REFERENCE.sub("", each) if isinstance(each, str) else each for each in args))

    def __str__(self) -> str:
        documented = next(each for each in type(self).__mro__ if each.__module__ == __name__)
        reference = f"See {PAGE}#{documented.__name__.lower()}."
        message = in_short(super().__str__(), _MOST_CHARACTERS - len(reference) - 1)
        # A command or a line of code at the end can be copied as it stands.
        return f"{message}{' ' if message.endswith('.') else chr(10)}{reference}" if message else reference


def in_short(message: str, most: int = _MOST_CHARACTERS) -> str:
    """Returns a message of `most` characters at most: of a longer one, the begin and the end.

    Example:
        >>> from tfscale.errors import in_short
        >>> len(in_short("a" * 100_000))
        2000
    """
    if len(message) <= most:
        return message
    gap = f" ... [{len(message)} characters in all] ... "
    return message[:_BEGIN] + gap + message[_BEGIN + len(gap) - most :]


class BatchError(TfscaleError, ValueError):
    """A batch size is missing, given twice, no positive integer, or too small for the replicas."""


class CallbackError(TfscaleError, ValueError):
    """A callback was made with an argument that it cannot work with."""


class ClusterError(TfscaleError, RuntimeError):
    """The environment does not say, or contradicts itself about, which workers are in the job."""


class CommunicationError(TfscaleError, ValueError):
    """Gradients cannot travel as asked: an unknown compression, a bad rank or pack size, or a step that forbids it."""


class DataError(TfscaleError, ValueError):
    """The data set does not have the form that the step needs, such as batches of another size."""


class DeviceError(TfscaleError, RuntimeError):
    """The devices or strategy asked for are absent, not supported, or asked for too late."""


class DriftError(TfscaleError, RuntimeError):
    """The weights of the replicas are no longer equal."""


class LaunchError(TfscaleError, RuntimeError):
    """`tfscale launch` cannot start the workers as it was asked to on this system."""


class MeasureError(TfscaleError, ValueError):
    """Noise in gradients cannot be measured from what was given."""


class ModelError(TfscaleError, ValueError):
    """The model is no Keras model, or was built outside the strategy's scope."""


class NonFiniteError(TfscaleError, RuntimeError):
    """The loss of a step is infinite or not a number. The weights are those of before that step."""


class ParityError(TfscaleError, ValueError):
    """A step is not that of one replica, found before anything was updated; or `verify` has nothing to compare."""


class RecoveryError(TfscaleError, ValueError):
    """A run cannot go on from the checkpoints that are there, or not as it was asked to."""


class ScalingError(TfscaleError, ValueError):
    """A hyper-parameter cannot be re-derived: a bad ratio, rule or value, or one that was re-derived before."""


class ReportError(TfscaleError, ValueError):
    """A run has left nothing that a report could be made of, or what it left cannot be read."""


class ScriptError(TfscaleError, ValueError):
    """A script cannot be read, or not be written."""


class StudyError(TfscaleError, ValueError):
    """A study or a sweep cannot be run as asked, or its results cannot be read or fitted."""


class VersionError(TfscaleError, RuntimeError):
    """TensorFlow, Keras or the Keras backend is not one that tfscale supports."""

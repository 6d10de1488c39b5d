"""What does a script say about the way between its replicas? Loads TensorFlow for a compression only."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from tfscale.cluster.deadline import read_timeout_s
from tfscale.errors import CommunicationError

COMMUNICATIONS = ("auto", "nccl", "ring")


@dataclass(frozen=True)
class Network:
    """How replicas reach each other, and how gradients travel between them.

    `DataParallel`, `make_strategy` and `prepare` take it. Without an argument everything is chosen, and exact.

    Args:
        communication: `"auto"`, `"nccl"` or `"ring"`. `"auto"` takes NCCL where there is nothing but GPUs that can use
            it, and measures the link between the replicas, for a second at most, to choose by it what travels together;
            not on the cores of one machine, which share them. The log and `print(dp)` say what was found.
        bytes_per_pack: Gradients are sent in packs of about this size, in the order in which the backward pass finishes
            them, while it goes on. Exact. 0 sends one pack; None chooses.
        compression: How gradients travel. `"none"`: as they are (exact). `"bf16"` and `"fp16"`: in half of the bytes
            (rounding). `PowerSGD(rank)`: as thin matrices (approximate). `ErrorFeedback(inner)`: what a compression
            leaves out goes into the next step. Or a `Compression` of one's own. Losses, counts and metrics stay exact.
        double_buffering: Whether gradients travel during the next step, which hides the link behind its computation
            (approximate: each update is made with the gradients of the step before; the same on any number of replicas
            from two on, and off on one). The first step of an epoch makes no update, its end makes up for it;
            `train_on_batch` stays exact. Published cost: ResNet-50 on CIFAR-10 at 89.3 % in place of 93.2 %, VGG-16 at
            90.6 % in place of 92.5 % (Chen et al. 2022, SAPipe). Not with gradient accumulation or AdaScale.
        timeout_s: Seconds within which all workers must have met; by default `TFSCALE_TIMEOUT_S`, or 120. 0 starts
            TensorFlow at once.

    Raises:
        CommunicationError: When one of the first four is none of the above.
        ClusterError: When `timeout_s` is no number of seconds.

    Example:
        >>> from tfscale import Network
        >>> Network(compression="bf16", timeout_s=600).compression
        'bf16'
        >>> Network(bytes_per_pack=-1)
        Traceback (most recent call last):
        ...
        tfscale.errors.CommunicationError: `bytes_per_pack` must be a number of bytes, or 0 for one pack.
        Received: bytes_per_pack=-1. Leave it out to have it chosen. See docs/errors.md#communicationerror.
    """

    communication: str = field(
        default="auto", metadata={"choices": COMMUNICATIONS, "help": "What carries gradients between replicas."}
    )
    bytes_per_pack: int | None = field(
        default=None,
        metadata={"help": "Gradients travel in packs of about this size; 0 for one pack; by default it is chosen."},
    )
    compression: Any = field(
        default="none", metadata={"help": "How gradients travel: 'none', 'bf16', 'fp16' or 'powersgd:RANK'."}
    )
    double_buffering: bool = field(
        default=False, metadata={"help": "Gradients travel during the next step, and are one step old."}
    )
    timeout_s: float | None = field(
        default=None, metadata={"help": "Seconds within which all workers must have met; 0 to start at once."}
    )

    def __post_init__(self) -> None:
        check_communication(self.communication)
        check_bytes_per_pack(self.bytes_per_pack)
        if not isinstance(self.double_buffering, bool):
            raise CommunicationError(
                f"`double_buffering` must be True or False.\nReceived: double_buffering={self.double_buffering!r}."
            )
        read_timeout_s(self.timeout_s, {})
        if not (isinstance(self.compression, str) and self.compression == "none"):
            # It loads TensorFlow, which whoever compresses nothing need not pay for here.
            from tfscale.gradients.compression.choice import choose_compression

            choose_compression(self.compression)

    def given(self, *names: str) -> dict[str, Any]:
        """Returns those of the named fields that were given: that are not what they are by default.

        Example:
            >>> from tfscale import Network
            >>> Network("ring", compression="bf16").given("communication", "timeout_s")
            {'communication': 'ring'}
        """
        defaults = {each.name: each.default for each in dataclasses.fields(self)}
        return {name: getattr(self, name) for name in names if getattr(self, name) != defaults[name]}


def check_communication(value: Any) -> None:
    """Raises `CommunicationError` for what is no argument `communication`."""
    if not isinstance(value, str) or value not in COMMUNICATIONS:
        raise CommunicationError(
            f"`communication` must be one of {', '.join(map(repr, COMMUNICATIONS))}.\n"
            f"Received: communication={value!r}."
        )


def check_bytes_per_pack(value: Any) -> None:
    """Raises `CommunicationError` for what is no argument `bytes_per_pack`."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise CommunicationError(
            "`bytes_per_pack` must be a number of bytes, or 0 for one pack.\n"
            f"Received: bytes_per_pack={value!r}. Leave it out to have it chosen."
        )


def choose_network(network: Any, **beside: Any) -> Network:
    """Returns the network that was given, whole or by its fields.

    Args:
        network: A `Network`; None for one that is chosen.
        **beside: Fields, for a function that takes some of them by name.

    Raises:
        CommunicationError: When it is no `Network`, or was given in both ways.

    Example:
        >>> choose_network(None, communication="ring").communication
        'ring'
    """
    if network is None:
        return Network(**beside)
    if not isinstance(network, Network):
        raise CommunicationError(
            "`network` must be a `tfscale.Network`.\n"
            f"Received: network={network!r}. Give, for example, tfscale.Network(compression='bf16')."
        )
    twice = Network(**beside).given(*beside)
    if twice:
        shown = ", ".join(f"{name}={value!r}" for name, value in twice.items())
        raise CommunicationError(
            "What a `network` has as its fields must be given there.\n"
            f"Received: {shown} and a network. Give {shown} to Network."
        )
    return network

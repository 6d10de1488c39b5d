"""The job cannot go on: because of which worker, and why?"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tfscale.cluster.passes import READ_ALIKE, EndedPass, LabelsSeen, PassesRead
from tfscale.cluster.place import Place, describe_memory, describe_place, read_place, to_wire

GONE, UNREACHABLE, SILENT, STALLED, STUCK, ENDED, STEPS, MODEL, CALL, DATA, LABELS = WHYS = (
    "gone",
    "unreachable",
    "silent",
    "stalled",
    "stuck",
    "ended",
    "steps",
    "model",
    "call",
    "data",
    "labels",
)

_AGAIN = "Start all workers again; `Recovery`, which `dp.callbacks(directory)` has, goes on where the last save was."
_SAME = "Give all workers the same data, model and script: what depends on the rank must not change what they do."


@dataclass(frozen=True)
class Verdict:
    """Who holds the job up.

    Args:
        rank: Of that worker.
        why: One of `WHYS`.
        place: Where it was last.
        other: Where the worker is that found out.
        seconds: For how long, where that matters.
    """

    rank: int
    why: str
    place: Place = field(default_factory=Place)
    other: Place = field(default_factory=Place)
    seconds: int = 0


def verdict_to_wire(verdict: Verdict | None) -> list[Any]:
    """What a datagram has of a verdict."""
    if verdict is None:
        return []
    places = [to_wire(verdict.place), to_wire(verdict.other)]
    return [verdict.rank, WHYS.index(verdict.why), *places, verdict.seconds]


def read_verdict(numbers: Any, num_workers: int) -> Verdict | None:
    """Returns the verdict that a datagram tells of; None where it tells of none.

    Raises:
        ValueError: It is malformed.
    """
    if numbers == []:
        return None
    if not isinstance(numbers, list) or len(numbers) != 5:
        raise ValueError("A verdict is rank, reason, two places and seconds.")
    rank, why, place, other, seconds = numbers
    limits = [(rank, num_workers), (why, len(WHYS)), (seconds, 1 << 31)]
    if not all(type(number) is int and 0 <= number < limit for number, limit in limits):
        raise ValueError("The numbers of a verdict are within their limits.")
    return Verdict(rank, WHYS[why], read_place(place), read_place(other), seconds)


def describe_verdict(verdict: Verdict, address: str) -> str:
    """What a survivor is told; `Received:` and the way out.

    Example:
        >>> from tfscale.cluster.place import Place
        >>> from tfscale.cluster.verdict import Verdict, describe_verdict
        >>> place = Place(call=1, kind=1, epoch=3, step=2)
        >>> print(describe_verdict(Verdict(1, "gone", place), "10.0.0.7:2222"))
        worker 1 (10.0.0.7:2222) is gone: its port refuses connections. Heard of last in step 2 of epoch 3 of `fit`. \
Its own output, or its host's log, has the cause. Start all workers again; `Recovery`, which `dp.callbacks(directory)` \
has, goes on where the last save was.
    """
    place, other = verdict.place, verdict.other
    last = f"Heard of last {describe_place(place)}{_while(place, other)}."
    memory = describe_memory(place)
    said = {
        GONE: f"is gone: its port refuses connections. {last} {memory} Its own output, or its host's log, has the "
        f"cause. {_AGAIN}",
        UNREACHABLE: f"does not answer: its host is down, or cut off from the network. {last} {memory} {_AGAIN}",
        SILENT: f"was silent for {verdict.seconds} s: it is stopped, or its host is down or cut off from the network. "
        f"{last} {memory} {_AGAIN}",
        STALLED: f"holds the others up for {verdict.seconds} s, longer than `ends_after_s` of `StallWatch`. {last} Its "
        f"own output shows what it does there. {_AGAIN}",
        STUCK: f"waits for {verdict.seconds} s, longer than `ends_after_s` of `StallWatch`, in a reduction at which "
        f"all workers have arrived. {last} Look at the network between them. {_AGAIN}",
        ENDED: f"has ended its call {_ended(place, other)}, and others go on, {describe_place(other)}. {_SAME} That is "
        "so too for `epochs`, `stop_training` and whatever ends a loop.",
        STEPS: f"no longer does the same step: after {place.ended_epochs} epoch(s) it has begun {place.ended_total} "
        f"batches, others {other.ended_total}. {_SAME}",
        MODEL: f"trains another model: its weights have other shapes than those of the others. {_SAME}",
        CALL: f"is {describe_place(place)}, others are {describe_place(other)}. {_SAME}",
        DATA: f"has come to the end of its data after {place.data_batches} batches, and others have more"
        f"{_in_call(other)}. {_SAME}",
        LABELS: f"has other labels than another worker in the first {place.data_batches} batch(es) of a pass over data "
        f"of which each takes its own rows. {READ_ALIKE}",
    }[verdict.why]
    return " ".join(f"worker {verdict.rank} ({address}) {said}".split())


def _in_call(place: Place) -> str:
    """Where a worker is, unless it runs steps of a loop of its own, of which nothing is told."""
    return f", {describe_place(place)}" if place.call else ""


def _while(place: Place, other: Place) -> str:
    """Where the others are by now; a step that none of them ends alone."""
    if (other.call, other.epoch, other.step) in [(0, 0, 0), (place.call, place.epoch, place.step)]:
        return ""
    return f", others are {describe_place(other)}"


def _ended(place: Place, other: Place) -> str:
    total = place.total if place.call == other.call else place.last_total
    return f"after {total} batches"


def judge_places(rank: int, own: Place, totals: Mapping[int, int], beats: Mapping[int, Place]) -> Verdict | None:
    """Who cannot be doing the same as this worker, by where all are; None where all may be.

    One worker may be a step, an epoch's end or the end of a call behind; what is compared holds however late it is.

    Args:
        rank: Of this worker.
        own: Where it is.
        totals: Batches that it had begun when each epoch of this call ended.
        beats: Where others are.
    """
    if not own.kind:
        return None
    found = [(other, why) for other, place in beats.items() if (why := _differs(own, totals, place))]
    if not found:
        return None
    # Where nearly all others differ from this one, it is this one that differs.
    if len(found) > 1 and len(found) > len(beats) / 2:
        other, why = found[0]
        return Verdict(rank, why, own, beats[other]) if why != ENDED else Verdict(other, why, beats[other], own)
    other, why = found[0]
    return Verdict(other, why, beats[other], own)


def _differs(own: Place, totals: Mapping[int, int], place: Place) -> str:
    if place.call == own.call:
        expected = totals.get(place.ended_epochs)
        if place.ended_epochs and expected is not None and place.ended_total != expected:
            return STEPS
        if place.model and own.model and place.model != own.model:
            return MODEL
        if place.kind and place.kind != own.kind:
            return CALL
        return ENDED if not place.kind and own.total > place.total else ""
    return ENDED if place.call == own.call + 1 and own.total > place.last_total else ""


def judge_passes(rank: int, own: Place, passes: PassesRead, beats: Mapping[int, Place]) -> Verdict | None:
    """Whose data have ended earlier; None where nobody's have, as far as is known.

    Args:
        rank: Of this worker.
        own: Where it is.
        passes: Over data, of this worker.
        beats: Where others are.
    """
    for other, place in beats.items():
        theirs = EndedPass(place.data, place.data_pass, place.data_batches)
        if passes.has_more_than(theirs):
            return Verdict(other, DATA, place, own)
        ours = passes.find_ended(theirs.data, theirs.number)
        if ours is not None and ours.batches < theirs.batches:
            return Verdict(rank, DATA, at_end_of(own, ours), place)
    return None


def judge_labels(own: Place, passes: PassesRead, told: Mapping[int, LabelsSeen]) -> Verdict | None:
    """Who has read other labels than this worker; None where nobody has, as far as is known.

    Args:
        own: Where this worker is.
        passes: Over data, of this worker.
        told: What others have said last of the labels that they have read.
    """
    for other, labels in told.items():
        if passes.has_other_labels_than(labels):
            place = at_end_of(own, EndedPass(*labels.place))
            return Verdict(other, LABELS, place, own)
    return None


def at_end_of(place: Place, ended: EndedPass) -> Place:
    """`place`, where that pass has ended last."""
    return replace(place, data=ended.data, data_pass=ended.number, data_batches=ended.batches)


def judge_stuck(own: Place, beats: Mapping[int, Place]) -> Verdict | None:
    """Who is elsewhere, when a step has failed and so nobody goes on: then every difference counts."""
    for rank, place in beats.items():
        if (place.call, place.kind) != (own.call, own.kind):
            why = ENDED if place.call > own.call or not place.kind else CALL
            return Verdict(rank, why, place, own)
        if (place.epoch, place.step) != (own.epoch, own.step):
            return Verdict(rank, CALL, place, own)
    return None


def judge_doors(doors: Mapping[int, str], beats: Mapping[int, Place], own: Place) -> Verdict | None:
    """Who is gone, by what became of a connection to each; of several the chief, whose end ends them all."""
    for why in (GONE, UNREACHABLE):
        for rank in sorted(rank for rank, found in doors.items() if found == why):
            place = beats.get(rank, Place())
            # Whose script came to its end in order has left, and this one goes on.
            has_left = why == GONE and bool(own.kind) and _has_ended(place, own)
            return Verdict(rank, ENDED if has_left else why, place, own)
    return None


def _has_ended(place: Place, own: Place) -> bool:
    """Whether a worker is through with the call in which this one is."""
    return place.call > own.call or (place.call == own.call and not place.kind)


def judge_silence(silent_s: Mapping[int, float], limit_s: float, beats: Mapping[int, Place]) -> Verdict | None:
    """Who was heard of, and is not any more."""
    heard: Iterable[int] = (rank for rank, seconds in silent_s.items() if rank in beats and seconds > limit_s)
    rank = max(heard, key=lambda each: silent_s[each], default=None)
    return None if rank is None else Verdict(rank, SILENT, beats[rank], seconds=int(silent_s[rank]))

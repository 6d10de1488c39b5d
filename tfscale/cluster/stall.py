"""A step takes very long: for which workers do the others wait?"""

from collections.abc import Mapping

from tfscale.cluster.heartbeats import Beat

_SHOWN = 8


def describe_stall(
    workers: Mapping[int, str], beats: Mapping[int, Beat], silent_s: Mapping[int, float], stall_s: float, beat_s: float
) -> str:
    """Returns what holds the job up; nothing where no worker has been waiting for long.

    Args:
        workers: Addresses by rank, of all that are to be judged.
        beats: Where each worker is, as far as it was heard of.
        silent_s: Seconds since each worker was last heard of.
        stall_s: From when on a step takes long.
        beat_s: Seconds between two beats: a worker that misses several is called silent.

    Example:
        >>> from tfscale.cluster.heartbeats import Beat
        >>> from tfscale.cluster.stall import describe_stall
        >>> beats = {0: Beat(step=7, arrived=7, left=6, waiting_s=61), 1: Beat(step=6, arrived=6, left=6)}
        >>> print(describe_stall({0: "a:1", 1: "b:1"}, beats, {}, stall_s=60, beat_s=1))
        step 7 of this fit takes longer than 60 s. Not arrived: worker 1 (b:1; it is between steps, after step 6).
    """
    longest_s = max((beat.waiting_s for beat in beats.values()), default=0.0)
    if longest_s < stall_s:
        return ""
    furthest = max(beat.arrived for beat in beats.values())
    step = max(beat.step for beat in beats.values())
    silent = _find_silent(workers, beats, silent_s, beat_s)
    missing = find_missing(workers, beats, silent_s, beat_s)
    said = f"step {step} of this fit takes longer than {stall_s:g} s"
    if missing:
        places = {rank: _place(beats.get(rank), rank in silent) for rank in missing[:_SHOWN]}
        shown = [f"worker {rank} ({workers[rank]}; {place})" for rank, place in places.items()]
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        return f"{said}. Not arrived: {', '.join(shown)}{more}."
    if all(beat.left == furthest for beat in beats.values()):
        return f"{said}. No worker has arrived at its reduction: each reads data, computes, or makes its graph."
    return f"{said}. All workers have arrived at its reduction, which does not end: look at the network between them."


def find_missing(
    workers: Mapping[int, str], beats: Mapping[int, Beat], silent_s: Mapping[int, float], beat_s: float
) -> list[int]:
    """Returns the ranks of the workers that have not arrived where others are; the arguments of `describe_stall`."""
    silent = _find_silent(workers, beats, silent_s, beat_s)
    furthest = max((beat.arrived for beat in beats.values()), default=0)
    return [rank for rank in workers if rank in silent or beats[rank].arrived < furthest]


def _find_silent(
    workers: Mapping[int, str], beats: Mapping[int, Beat], silent_s: Mapping[int, float], beat_s: float
) -> set[int]:
    return {rank for rank in workers if rank not in beats or silent_s.get(rank, 0.0) > 5 * beat_s}


def _place(beat: Beat | None, is_silent: bool) -> str:
    if is_silent:
        return "nothing is heard of it" if beat is None else f"nothing is heard of it since step {beat.step}"
    if beat is None or not beat.waiting_s:
        return f"it is between steps, after step {beat.step}" if beat else "nothing is heard of it"
    return f"it reads data or computes, in step {beat.step}, for {beat.waiting_s:.0f} s"

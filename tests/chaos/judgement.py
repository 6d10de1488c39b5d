"""Has a job come through what befell it?

It has where it ends with the numbers of a run that nothing befell, and where whoever could not go on said why with an
error of ours. It is lost where the numbers are others, somebody hangs, an error is not ours, or it cannot begin again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.chaos.outcome import Job, Tried
from tests.chaos.schedule import AGAIN, DAMAGES, DATA, ENDING, EPOCHS, EXAMPLES, SAME, WHOLE, Schedule
from tests.processes import Ended

TOLERANCE = 1e-5
TERMINATED = 143
_ANEW = "Delete the directory"
_RAW = ("Graph execution error", "Detected at node", "During handling", "The above exception")
_SHOWN_CHARACTERS = 2500


def judge(schedule: Schedule, job: Job, reference: Mapping[str, Any] | None) -> str:
    """Returns why a job is lost; nothing where it is not.

    Args:
        schedule: What was to befall it.
        job: What has come of it.
        reference: What the run ends with that nothing befalls; None where its order is another one each time.
    """
    for number, tried in enumerate(job.starts):
        if why := explain_end(tried) or _explain_refusal(tried):
            return f"start {number}: {why}"
    if job.begun_anew and not any(fault.kind in DAMAGES for fault in job.befell):
        return f"it had to begin anew, and nobody had damaged its files: {job.begun_anew[0]}"
    if not job.starts[-1].is_complete:
        return f"not complete after {len(job.starts)} starts: {_last(job.starts[-1].ended[0])}"
    return _explain_orders(DATA[schedule.data], job) or _explain_numbers(job.starts[-1], reference)


def explain_end(tried: Tried) -> str:
    """Returns what is wrong with the way in which the workers of a start have ended; nothing where it is well."""
    for rank, each in enumerate(tried.ended):
        why = "" if rank in tried.victims and each.status is not None else _explain_worker(tried, each)
        if why:
            return f"worker {rank} {why}"
    return ""


def advice(tried: Tried) -> str:
    """The error of a start that tells to delete the directory; nothing where there is none."""
    return next((_last(each) for each in tried.ended if each.status == 1 and _ANEW in _last(each)), "")


def _explain_worker(tried: Tried, each: Ended) -> str:
    ending = [fault.kind for fault in tried.befell if fault.kind in ENDING]
    shown = each.output[-_SHOWN_CHARACTERS:]
    if each.status is None:
        return f"hangs: {shown}"
    if each.status == 0 and each.result is not None:
        return ""
    if each.status == TERMINATED and "SIGTERM" in ending:
        return ""
    if each.status != 1 or not re.match(r"tfscale\.errors\.\w+: ", _last(each)):
        return f"ended with status {each.status} and no error of ours: {shown}"
    traceback = each.output.rpartition("Traceback (most recent call last)")[2]
    if raw := next((raw for raw in _RAW if raw in traceback), ""):
        return f"shows {raw!r} beside its error: {shown}"
    if not ending and not advice(tried):
        return f"ended, and nothing had befallen it that ends a job: {shown}"
    return ""


def _last(each: Ended) -> str:
    """The error that is shown last, from its name on."""
    begins = [match.start() for match in re.finditer(r"^[\w.]+(?:Error|Exception|Exit)\b", each.output, re.MULTILINE)]
    return each.output[begins[-1] :].strip() if begins else ""


def _explain_refusal(tried: Tried) -> str:
    if tried.refusal is None or "A directory belongs to one run at a time" in tried.refusal:
        return ""
    return f"a second run was not refused by name: {tried.refusal[-_SHOWN_CHARACTERS:]!r}"


def _explain_orders(promise: str, job: Job) -> str:
    """What is wrong with where the run went on, and with what was said of it."""
    said = "".join(tried.ended[0].output for tried in job.starts)
    if promise == SAME and "begun again" in said:
        return "an epoch was begun again of data whose order is always the same"
    if promise in (AGAIN, WHOLE) and (match := re.search(r"goes on in epoch \d+ after [1-9]\d* of its steps", said)):
        return f"data whose order is another one: {match[0]}"
    if promise == WHOLE and "saved after epochs only" not in job.starts[-1].ended[0].output:
        return "the log does not say that the state is saved after epochs only"
    return ""


def _explain_numbers(tried: Tried, reference: Mapping[str, Any] | None) -> str:
    for rank, each in enumerate(tried.ended):
        found = each.result
        if found["seen"] != [EPOCHS] * EXAMPLES:
            return f"worker {rank} has seen the examples so often: {found['seen']}"
        if found["epochs"] != list(range(EPOCHS)):
            return f"worker {rank} has the epochs {found['epochs']} in its History"
        if reference is None:
            continue
        if (difference := _difference(found["learned"], reference["learned"])) > TOLERANCE:
            return f"worker {rank} has learned something else: a relative difference of {difference:.1e}"
        for name, expected in reference["history"].items():
            if (difference := _difference(found["history"][name], expected)) > TOLERANCE:
                return f"worker {rank} has another {name} in its History: a relative difference of {difference:.1e}"
    return ""


def _difference(found: Any, expected: Any) -> float:
    """max|a - b| / max|b|, infinite where there is nothing to compare."""
    a, b = np.asarray(found), np.asarray(expected)
    if a.shape != b.shape or not np.all(np.isfinite(a)):
        return float("inf")
    return float(np.max(np.abs(a - b)) / np.max(np.abs(b)))

"""May a study go on in a directory, and with what?"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfscale.errors import StudyError
from tfscale.parity.target import load
from tfscale.study.goal import Goal
from tfscale.study.schedule import Settings
from tfscale.trials.experiment import Experiment
from tfscale.trials.script_source import source_digest

_NAME = "study.json"
# What may become more, and the flag that says how much.
_GROWS = {"trials": "--trials", "seeds": "--seeds", "budget_examples": "--budget-epochs"}
_FUNCTIONS = ("build", "data")


def go_on(directory: Path, experiment: Experiment, settings: Settings) -> Settings:
    """Notes in a directory what its study is; returns the settings, with what the study has had before.

    Batches, trials, seeds and the budget may be more than they were. A directory in which no trial has ended is
    nobody's.

    Args:
        directory: Of the study.
        experiment: What is trained.
        settings: What is to be tried.

    Raises:
        StudyError: Naming the first difference, when it is another study's; or when the note cannot be read.
    """
    own = _note(experiment, settings)
    known = _read(directory)
    if known is None:
        own["first_trials"] = settings.trials
    else:
        _compare(directory, known, own)
        own["batches"] = sorted({*known["batches"], *own["batches"]})
        own["first_trials"] = known.get("first_trials", known["trials"])
    directory.mkdir(parents=True, exist_ok=True)
    part = directory / f"{_NAME}.part{uuid.uuid4().hex}"
    part.write_text(json.dumps(own, indent=1), encoding="utf-8")
    part.replace(directory / _NAME)
    return dataclasses.replace(settings, batches=tuple(own["batches"]), first_trials=own["first_trials"])


def known_reference_batch(directory: Path) -> int | None:
    """That of the study in a directory; None where there is none.

    Raises:
        StudyError: When its note cannot be read.
    """
    known = _read(directory)
    return None if known is None else int(known["reference_batch"])


def _note(experiment: Experiment, settings: Settings) -> dict[str, Any]:
    sources = {name: source_digest(load(getattr(experiment, name))) for name in _FUNCTIONS}
    content = {"experiment": dataclasses.asdict(experiment), **dataclasses.asdict(settings), "sources": sources}
    return dict(json.loads(json.dumps(content)))


def _read(directory: Path) -> dict[str, Any] | None:
    if not any((directory / "trials").glob("*.json")):
        return None
    path = directory / _NAME
    try:
        known = dict(json.loads(path.read_text(encoding="utf-8")))
        batches, numbers = known["batches"], [known[name] for name in ("trials", "seeds", "reference_batch")]
        numbers += [known["experiment"]["budget_examples"], known.get("first_trials", 1), *batches]
        if not all(isinstance(each, int) and not isinstance(each, bool) and each > 0 for each in numbers):
            raise ValueError("a number in it is none")
        return known
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise StudyError(
            f"The directory of a study must have a {_NAME} that can be read.\nReceived: {path}: {error!r}. "
            "Give a directory of its own."
        ) from error


def _compare(directory: Path, known: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    before, after = _flat(known), _flat(own)
    for name, value in after.items():
        if name in before and name not in _GROWS and before[name] != value:
            raise StudyError(
                f"A study goes on with what it was begun with.\nReceived: {name}={_shown(name, value)}, and in "
                f"{directory} it is {_shown(name, before[name])}. Give each study a directory of its own."
            )
    for name in _FUNCTIONS:
        digests = [each.get("sources", {}).get(name) for each in (known, own)]
        if None not in digests and digests[0] != digests[1]:
            where = ":".join(own["experiment"][name].values())
            raise StudyError(
                "A study goes on with what it was begun with.\n"
                f"Received: `{name}`, {where}, whose source has changed since {directory} was begun. Undo the change, "
                "or give each study a directory of its own."
            )
    for name, flag in _GROWS.items():
        if after[name] < before[name]:
            raise StudyError(
                "A study goes on with as much as it has had, or with more.\n"
                f"Received: {name}={after[name]}, and in {directory} it is {before[name]}. Give a larger {flag}, or "
                "a directory of its own."
            )


def _flat(note: Mapping[str, Any]) -> dict[str, Any]:
    left_out = ("experiment", "batches", "first_trials", "sources", "most_batch")
    rest = {name: value for name, value in note.items() if name not in left_out}
    return {**note["experiment"], "num_examples": note.get("most_batch"), **rest}


def _shown(name: str, value: Any) -> str:
    if name in _FUNCTIONS:
        return ":".join(map(str, value.values()))
    return str(Goal(**value)) if name == "goal" else json.dumps(value)[:300]

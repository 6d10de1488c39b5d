"""Runs two workers over a limited link and prints one table. The exit status is 1 when a bar is missed."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib.metadata
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.links import network
from benchmarks.links.options import MODELS, OPTIONS, RATES, TRACED, TRACED_RATE
from benchmarks.links.pair import Pair, running
from benchmarks.links.report import Block, render, rows_of
from benchmarks.processes import ROOT, ContenderError
from benchmarks.table import machine_facts

RESULTS = ROOT / "benchmarks" / "results" / "links.jsonl"
_TIMEOUT_S = 180.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status; 0 with a message where there can be no such networks."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parse(given)
    obstacle = network.obstacle()
    if obstacle:
        _tell(f"Skipped: this benchmark needs network namespaces and a token bucket. {obstacle}")
        return 0
    network.enter("benchmarks.links", given)
    blocks: list[Block] = []
    failed = False
    for model in [options.model] if options.model else MODELS:
        try:
            for block in _measure(model, options):
                blocks.append(block)
                with options.results.open("a") as stream:
                    stream.write(json.dumps(dataclasses.asdict(block)) + "\n")
        except ContenderError as error:
            failed = True
            _tell(f"{model}: {error}")
    rows = rows_of(blocks)
    print(f"{_facts(options)}\n\n{render(rows)}")
    return int(failed or any(row.passed is False for row in rows))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.links", description=__doc__)
    parser.add_argument("--model", choices=MODELS, help="one model")
    parser.add_argument("--rates", nargs="+", choices=RATES, default=list(RATES), help="of the link")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each option")
    parser.add_argument("--block-seconds", type=float, default=1.0, help="seconds of a turn, about")
    parser.add_argument("--steps-per-call", type=int, default=8, help="optimizer updates per call, of every option")
    parser.add_argument("--results", type=Path, default=RESULTS, help="JSON lines are added")
    options = parser.parse_args(arguments)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    return options


def _measure(model: str, options: argparse.Namespace) -> Iterator[Block]:
    """All options in turn, in reverse order every other round."""
    with running(model, options.steps_per_call, _TIMEOUT_S) as pair:
        for rate in options.rates:
            found, _ = pair.ask({"rate": rate})
            _tell(f"{model}, {rate}: {found['found']}")
            steps = {option.label: _steps(pair, option.label, options) for option in OPTIONS}
            for index in range(options.rounds):
                for option in OPTIONS if index % 2 == 0 else reversed(OPTIONS):
                    count = steps[option.label]
                    answers = pair.ask({"option": option.label, "steps": count})
                    step_s = max(answer["seconds"] for answer in answers) / count
                    sent = max(answer["sent_bytes"] for answer in answers)
                    yield Block(model, rate, option.label, index, step_s, sent)
            if rate == TRACED_RATE:
                _show_timelines(pair, model, options.steps_per_call)


def _show_timelines(pair: Pair, model: str, num_steps: int) -> None:
    """What the profiler saw of a few steps, of the first worker: computation under a collective costs no time."""
    for label in TRACED:
        seen, _ = pair.ask({"trace": label, "steps": num_steps})
        overlapped_ms = seen["overlapped_us"] / 1e3 / (2 * num_steps)
        print(f"{model}, {TRACED_RATE}, {label}: {overlapped_ms:.1f} ms a step of computing beside collectives")
        print(seen["drawn"] + "\n")


def _steps(pair: Pair, option: str, options: argparse.Namespace) -> int:
    """Steps of a turn, in whole calls; the first ones are slow, and how slow is not known yet."""
    for _ in range(2):
        answers = pair.ask({"option": option, "steps": options.steps_per_call})
    call_s = max(answer["seconds"] for answer in answers)
    return options.steps_per_call * max(1, round(options.block_seconds / call_s))


def _facts(options: argparse.Namespace) -> str:
    facts = machine_facts()
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("tensorflow", "keras", "tfscale"))
    now = datetime.datetime.now().astimezone().isoformat(timespec="minutes")
    return "\n".join(
        [
            f"{now}, {facts['num_cpus']} CPU(s), {facts['system']}: {versions}.",
            f"Two workers, a core each, batch 64 each, {options.steps_per_call} steps per call; "
            f"{options.rounds} rounds of {options.block_seconds:g} s in turn.",
            "ms a step: median [least .. greatest]. MB sent: by one worker in a step, headers included.",
            "limit: the larger of a step without reduction and MB sent / rate. speed-up: over float32 in one pack.",
        ]
    )


def _tell(text: str) -> None:
    """Progress; the table alone goes to the standard output."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""What does `tfscale plan --noise` answer?"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable

from tfscale.errors import MeasureError
from tfscale.plan.cautions import with_cautions
from tfscale.plan.critical_batch import CriticalBatch, from_noise, from_study
from tfscale.plan.given import check_count, link_of, size_bytes_of, step_time_of
from tfscale.plan.link import COMPARED, Link, network_table, parse_link
from tfscale.plan.report import Foretold, describe, to_json
from tfscale.plan.rows import Run, advise, predict
from tfscale.plan.source import Trace, check_same_model, goal_of, models_of, of_unknown_model, read_all
from tfscale.plan.step_time import StepTime
from tfscale.study import fit

_MOST = 10**9


def answer(args: argparse.Namespace, calibrate: Callable[[Trace], CriticalBatch] | None = None) -> str:
    """Returns what the subcommand prints.

    Args:
        args: With what `flags.add_flags` adds, `replicas`, `per_replica_batch`, `micro_batch`, `critical_batch`
            and `json`.
        calibrate: Finds the critical batch by branches; None to do without.

    Raises:
        MeasureError: When what is given cannot be read, contradicts itself, or does not tell.
        StudyError: When a study does not tell.
    """
    traces = read_all(args.noise)
    trace = traces[0]
    numbers = parse_counts(args.replicas or "1,2,4,8,16", "--replicas")
    step_time, assumptions = step_time_of(args.step_times, traces)
    link = link_of(args, trace, max(numbers), assumptions)
    run = _run(args, trace, max(numbers))
    if args.run_steps is not None:
        assumptions.append(f"{args.run_steps} steps of {run.batch:g} examples: given, the trace has {trace.steps}")
    if len(traces) > 1 or args.study or calibrate is not None:
        assumptions += [of_unknown_model(each.path) for each in traces if not each.told]
    critical = with_cautions(_critical(args, trace, calibrate), trace)
    own = max(1, round(run.batch / trace.replicas))
    batches = parse_counts(args.per_replica_batch, "--per-replica-batch") if args.per_replica_batch else [own]
    price = args.price_per_hour
    if price is not None and not (math.isfinite(price) and 0 <= price < 1e9):
        raise MeasureError(f"A price must be a number, 0 or more.\nReceived: {price!r}.")
    rows = predict(
        run,
        critical,
        step_time,
        link,
        num_replicas=numbers,
        per_replica_batches=batches,
        price_per_hour=price,
    )
    advice = advise(rows, run, critical)
    network = _network(advice.row.num_replicas, max(numbers), batches[0], run, step_time, link)
    found = Foretold(trace, run, critical, rows, advice, network, tuple(assumptions))
    return json.dumps(to_json(found), indent=1) if args.json else describe(found)


def _critical(
    args: argparse.Namespace, trace: Trace, calibrate: Callable[[Trace], CriticalBatch] | None
) -> CriticalBatch:
    given = [name for name, each in (("--study", args.study), ("--critical-batch", args.critical_batch)) if each]
    given += ["--calibrate"] if calibrate is not None else []
    if len(given) > 1:
        raise MeasureError(
            "The critical batch must come from one place.\n"
            f"Received: {' and '.join(given)}. Keep the one that is to be believed."
        )
    if args.study:
        check_same_model(trace, models_of(args.study), f"the study {args.study!r}")
        return from_study(fit(args.study), goal_of(args.study))
    if args.critical_batch:
        return CriticalBatch(args.critical_batch, args.critical_batch, args.critical_batch, "given", "as given")
    return from_noise(trace.rows) if calibrate is None else calibrate(trace)


def _run(args: argparse.Namespace, trace: Trace, most: int) -> Run:
    steps: float = trace.steps if args.run_steps is None else args.run_steps
    if args.study and args.run_steps is None:
        steps = fit(args.study, draws=0).law.steps(trace.batch)
    check_count("--run-steps", steps)
    return Run(steps, trace.batch, size_bytes_of(args.parameters, trace, most), args.micro_batch)


def _network(
    advised: int, most: int, batch: int, run: Run, step_time: StepTime, link: Link | None
) -> tuple[int, list[dict[str, float | str]]] | None:
    """For the number that is advised, or for two where that is one."""
    if link is None:
        return None
    number = min(max(2, advised), most)
    links = {f"{link.name} (given)": link}
    for name in COMPARED:
        links[name] = parse_link(name, latency_s=None if name == "nvlink" else link.latency_s)
    _, computing = step_time.seconds(batch, run.micro_batch)
    last = min(batch, run.micro_batch or batch)
    _, pass_s = step_time.seconds(last)
    table = network_table(links, num_replicas=number, size_bytes=run.size_bytes, computing_s=computing, pass_s=pass_s)
    return number, table


def parse_counts(text: str, name: str) -> list[int]:
    """Reads "1,2,4".

    Raises:
        MeasureError: When a part is no positive integer.
    """
    parts = text.split(",")
    if not all(part.isdecimal() and part.isascii() and len(part) < 12 and 0 < int(part) <= _MOST for part in parts):
        raise MeasureError(
            f"`{name}` must be positive integers with commas between, at most 1e9.\nReceived: {text[:100]!r}."
        )
    return [int(part) for part in parts]

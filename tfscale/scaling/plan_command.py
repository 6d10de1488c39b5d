"""`tfscale plan`: its flags, and what it answers."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any, NoReturn

from tfscale.scaling.batch_plan import MAX_COUNT
from tfscale.scaling.cautions import find_cautions
from tfscale.scaling.derivation import TunedRun, derive_ways
from tfscale.scaling.laws import ADAM_BETA_1
from tfscale.scaling.optimizer_table import OPTIMIZERS
from tfscale.scaling.plan_report import describe_plan, plan_to_json
from tfscale.scaling.recipe import Recipe
from tfscale.scaling.rules import RULE_NAMES

_SHOWN = 100

# Of a recipe, what has a shorter flag.
_RENAMED = {"examples_per_epoch": "examples"}
# The knobs that have a flag, with what the flag says.
_KNOBS = {
    "learning_rate": "the recipe's learning rate",
    "momentum": "momentum of SGD, RMSprop or Muon",
    "beta_1": "decay of the average of gradients",
    "beta_2": "decay of the average of squared gradients",
    "rho": "the same, as RMSprop and Adadelta call it",
    "epsilon": "the optimizer's epsilon",
    "weight_decay": "decoupled weight decay",
    "ema_momentum": "decay of the average of weights, if there is one",
    "ema_overwrite_frequency": "steps between overwriting the weights by their average",
}


_EXAMPLE = "For example: tfscale plan --examples 50000 --per-replica-batch 32 --replicas 8"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the subcommand to its parser."""
    parser.add_argument("--examples", type=_count, metavar="N", help="examples in an epoch")
    batch = parser.add_mutually_exclusive_group()
    batch.add_argument("--per-replica-batch", metavar="N", help="examples of one replica in one step; with --noise N,N")
    batch.add_argument("--global-batch", type=_count, metavar="N", help="examples of all replicas in one step")
    parser.add_argument(
        "--reference-batch",
        type=_count,
        metavar="N",
        help="the batch the recipe was tuned for (default: the one given)",
    )
    parser.add_argument("--replicas", metavar="N", help="copies of the model; with --noise N,N,...")
    parser.add_argument("--micro-batch", type=_count, metavar="N", help="most examples of one pass on one replica")
    parser.add_argument(
        "--optimizer",
        type=str.lower,
        choices=sorted(name.lower() for name in OPTIMIZERS),
        default="sgd",
        metavar="NAME",
        help="a class of keras.optimizers, in any case (default: sgd)",
    )
    parser.add_argument("--rule", choices=RULE_NAMES, default="auto", help="how the rate grows (default: auto)")
    for name, text in _KNOBS.items():
        kind = _count if name == "ema_overwrite_frequency" else _number
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar="X", help=f"{text} (default: Keras's)")
    parser.add_argument("--decay-steps", type=_count, metavar="N", help="length of the recipe's schedule, in its steps")
    parser.add_argument(
        "--warmup-steps", type=_count, metavar="N", help="length of the warm-up that the schedule has, in its steps"
    )
    parser.add_argument("--epochs", type=_number, metavar="N", help="length of the run")
    parser.add_argument(
        "--warmup-epochs",
        type=_epochs,
        default="auto",
        metavar="N",
        help="epochs from the recipe's rate to the new one (default: 5 with rule linear, else 0)",
    )
    parser.add_argument(
        "--adam-beta-1",
        choices=tuple(ADAM_BETA_1),
        default="keep",
        help="what becomes of beta_1 of Adam and its kin: kept, or beta_1^r (default: keep)",
    )
    parser.add_argument(
        "--critical-batch",
        type=_number,
        metavar="EXAMPLES",
        help="the critical batch, if it is known: what is beyond half of it costs more examples, and is said",
    )
    parser.add_argument(
        "--clipped-share", type=_number, metavar="X", help="share of the recipe's steps in which clipping bites, 0 to 1"
    )
    parser.add_argument("--batch-norm", action="store_true", help="the model has BatchNormalization")
    parser.add_argument("--json", action="store_true", help="print an object of JSON in place of the table")


def check_recipe(args: argparse.Namespace, refuse: Callable[[str], NoReturn]) -> argparse.Namespace:
    """Returns the arguments of a plan without measurements, with numbers for what else is a list.

    Args:
        args: As parsed.
        refuse: Ends the process with a message, as the parser does.
    """
    given = {"--examples": args.examples, "--replicas": args.replicas}
    missing = [name for name, value in given.items() if value is None]
    if missing:
        refuse(f"the following arguments are required without --noise or --check: {', '.join(missing)}. {_EXAMPLE}")
    if args.per_replica_batch is None and args.global_batch is None:
        refuse(f"one of the arguments --per-replica-batch --global-batch is required. {_EXAMPLE}")
    numbers = {}
    for name in ("replicas", "per_replica_batch"):
        text = getattr(args, name)
        try:
            numbers[name] = None if text is None else _count(text)
        except argparse.ArgumentTypeError as error:
            refuse(f"argument --{name.replace('_', '-')}: {error}")
    return argparse.Namespace(**{**vars(args), **numbers})


def answer(args: argparse.Namespace) -> str:
    """Returns what the subcommand prints.

    Args:
        args: With every flag that `add_flags` adds.

    Raises:
        BatchError: When the batches contradict each other.
        ScalingError: When the recipe cannot be re-derived.
    """
    optimizer = next(name for name in OPTIMIZERS if name.lower() == args.optimizer)
    recipe = Recipe(**{each.name: getattr(args, _RENAMED.get(each.name, each.name)) for each in fields(Recipe)})
    run = TunedRun(
        optimizer,
        {name: getattr(args, name) for name in _KNOBS if getattr(args, name) is not None},
        recipe,
        epochs=args.epochs,
        decay_steps=args.decay_steps,
        has_batch_norm=args.batch_norm,
        warmup_steps=args.warmup_steps,
    )
    kept, grown = derive_ways(
        run,
        num_replicas=args.replicas,
        per_replica_batch=args.per_replica_batch,
        global_batch=args.global_batch,
        micro_batch=args.micro_batch,
    )
    cautions = {way.title: find_cautions(run, way) for way in (kept, grown) if way is not None}
    if kept is None:
        batch, replicas = grown.batches.reference_batch, grown.batches.num_replicas
        cautions["keep the batch"] = (f"{batch} examples cannot be split over {replicas} replicas.",)
    if args.json:
        return json.dumps(plan_to_json(run, kept, grown, cautions), indent=2)
    return describe_plan(run, kept, grown, cautions)


def _count(text: str) -> int:
    is_count = text.isdecimal() and text.isascii()
    # Python itself does not read thousands of digits.
    count = (int(text) if len(text) < 100 else MAX_COUNT + 1) if is_count else 0
    if not 1 <= count <= MAX_COUNT:
        raise _refusal("must be a positive integer", text, is_large=count > MAX_COUNT)
    return count


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= MAX_COUNT:
        raise _refusal("must be a number, 0 or more", text, is_large=MAX_COUNT < number < float("inf"))
    return number


def _refusal(rule: str, text: str, *, is_large: bool) -> argparse.ArgumentTypeError:
    limit = f", at most {MAX_COUNT:.0e}" if is_large else ""
    return argparse.ArgumentTypeError(f"{rule}{limit}. Received: {text[:_SHOWN]!r}")


def _epochs(text: str) -> Any:
    return text if text == "auto" else _number(text)

"""`tfscale measure`: the command line's way to the noise scale."""

from __future__ import annotations

import argparse
import json
import os

from tfscale.parity.target import find_target
from tfscale.trials.measuring import import_like_python, measure


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand.

    Args:
        args: With `build`, `data`, `steps`, `global_batch`, `per_layer`, `output` and `json`.

    Returns:
        The exit status: 0 when the noise scale has an upper end, 1 when there are too few steps to tell.
    """
    import_like_python([os.getcwd()])
    targets = find_target(args.build, "build"), find_target(args.data, "data")
    noise = measure(
        *targets, steps=args.steps, global_batch=args.global_batch, per_layer=args.per_layer, path=args.output
    )
    found = noise.found
    if args.json:
        print(json.dumps(noise.summary(), indent=1))
    else:
        lines = [str(found) if found is not None else f"{len(noise.rows)} steps could be measured: 20 are needed"]
        lines += [f"approximate: {each}" for each in noise.approximate]
        lines += [f"clipping bites in {100 * noise.clipped_share:.0f} % of the steps"] if noise.clipped_share else []
        lines += [f"  {name}: {each}" for name, each in noise.by_layer.items()]
        lines.append(f"written to {args.output}; the batch up to which more replicas pay: `tfscale plan --noise`")
        print("\n".join(lines))
    return 0 if found is not None and found.high is not None else 1

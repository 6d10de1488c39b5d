"""Which commands are there, how is each called, and what does its exit status mean?"""

from __future__ import annotations

from dataclasses import dataclass

REFUSED = "it could not run: a bad argument, or an error of tfscale that says the way out"


@dataclass(frozen=True)
class Command:
    """One subcommand.

    Args:
        name: Of it.
        purpose: In a line.
        example: A command line.
        statuses: What each exit status means; 2 is the same for all.
    """

    name: str
    purpose: str
    example: str
    statuses: dict[int, str]

    def epilog(self) -> str:
        """What stands below the flags in `--help`."""
        told = [f"  {status}  {meaning}" for status, meaning in {**self.statuses, 2: REFUSED}.items()]
        return "\n".join(["example:", f"  {self.example}", "", "exit status:", *told])


COMMANDS = {
    command.name: command
    for command in (
        Command(
            "init",
            "show the lines that a plain Keras script needs, as a diff",
            "tfscale init train.py",
            {
                0: "all lines have their place, or none is needed",
                1: "a line has to be placed by hand; nothing was written",
            },
        ),
        Command(
            "verify",
            "show that N replicas give the result of one, on your own model and data",
            "tfscale verify train.py:build train.py:data --replicas 1,2,3",
            {
                0: "every run is equal to plain Keras on one device, or differs by rounding alone (equal in float64); "
                "with `--bitwise`, to the bit to tfscale's there",
                1: "a run differs, or crashed",
            },
        ),
        Command(
            "launch",
            "start the workers of a job, watch them, stop them together",
            "tfscale launch --workers 2 train.py --epochs 90",
            {
                0: "every worker ended well",
                1: "or another number: that of the first worker to fail; 128 + N for signal N",
                143: "ended by SIGTERM; with `Recovery`, the run was saved",
            },
        ),
        Command(
            "report",
            "write one page of a run: curves, speed, noise, recoveries, what was derived",
            "tfscale report runs/a",
            {0: "the page was written", 1: "it was written, and a file of the run could not be read"},
        ),
        Command(
            "plan",
            "show what becomes of batch, rate and every step-counted knob on N replicas",
            "tfscale plan --examples 50000 --per-replica-batch 64 --replicas 8 --learning-rate 0.1",
            {0: "the plan was printed"},
        ),
        Command(
            "measure",
            "measure the noise in your model's gradients: up to which batch do more replicas pay?",
            "tfscale measure train.py:build train.py:data --steps 300",
            {0: "the noise scale was found", 1: "it takes more steps to tell"},
        ),
        Command(
            "study",
            "find the critical batch of your model by training it at many batches",
            "tfscale study train.py:build train.py:data --target val_accuracy=0.95 --batches 16..512 --directory s",
            {0: "batches up to twice the critical one reached the target", 1: "they did not"},
        ),
        Command(
            "sweep",
            "find the best settings of your function, trying many side by side",
            "tfscale sweep train.py:objective --space space.yaml --trials 40 --at-a-time 8",
            {0: "a trial has a result", 1: "none has"},
        ),
        Command(
            "doctor",
            "show what is here, what is wrong, and what to do about it",
            "tfscale doctor",
            {0: "no errors; warnings are none", 1: "an error"},
        ),
    )
}


def overview(version: str) -> str:
    """What `tfscale` alone says."""
    width = max(map(len, COMMANDS))
    lines = [f"tfscale {version}: train one Keras model on N replicas, with the result of one.", ""]
    lines += [f"  {command.name:<{width}}  {command.purpose}" for command in COMMANDS.values()]
    lines += ["", "Begin with these:"]
    lines += [f"  {COMMANDS[name].example}" for name in ("doctor", "init", "verify", "launch")]
    return "\n".join(
        [*lines, "", "`tfscale COMMAND --help` has each command's flags, an example, and its exit statuses."]
    )

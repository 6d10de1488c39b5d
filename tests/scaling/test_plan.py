"""`tfscale plan`: the numbers, the warnings, the refusals, the time."""

import json
import math
import subprocess
import sys

import pytest

from tests.processor_time import AT_ONCE, in_starts_of_python
from tests.repository import ROOT
from tfscale import cli

IMAGENET = ["--examples", "1281167", "--per-replica-batch", "256", "--replicas", "8", "--learning-rate", "0.1"]


def plan(capsys, *arguments):
    assert cli.main(["plan", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def knobs(way):
    return {knob["name"]: knob["new"] for knob in way["knobs"]}


def test_both_ways(capsys):
    found = plan(capsys, *IMAGENET, "--momentum", "0.9", "--epochs", "90", "--decay-steps", "450450")
    kept, grown = found["keep"], found["grow"]
    assert (kept["global_batch"], kept["per_replica_batch"], kept["batch_ratio"]) == (256, 32, 1)
    assert (grown["global_batch"], grown["per_replica_batch"], grown["batch_ratio"]) == (2048, 256, 8)
    assert (kept["steps_per_epoch"], grown["steps_per_epoch"]) == (5005, 626)
    assert (kept["steps"], grown["steps"]) == (450450, 56340)
    assert (kept["warmup_steps"], grown["warmup_steps"]) == (0, 5 * 1281167 / 2048)
    assert knobs(kept) == {"learning_rate": 0.1, "schedule": 450450, "momentum": 0.9}
    assert knobs(grown) == pytest.approx({"learning_rate": 0.8, "schedule": 450450 / 8, "momentum": 0.9})
    assert kept["warnings"] == grown["warnings"] == []


@pytest.mark.parametrize(
    ("batches", "kept", "grown"),
    [
        (["--per-replica-batch", "64", "--replicas", "1"], (64, 1), (64, 1)),
        (["--per-replica-batch", "64", "--replicas", "4"], (64, 1), (256, 4)),
        (["--per-replica-batch", "64", "--replicas", "4", "--reference-batch", "128"], (128, 1), (256, 2)),
        (["--global-batch", "64", "--replicas", "4"], (64, 1), (256, 4)),
        (["--global-batch", "96", "--replicas", "4", "--reference-batch", "64"], (64, 1), (96, 1.5)),
    ],
)
def test_batches(capsys, batches, kept, grown):
    found = plan(capsys, "--examples", "10000", *batches)
    assert (found["keep"]["global_batch"], found["keep"]["batch_ratio"]) == kept
    assert (found["grow"]["global_batch"], found["grow"]["batch_ratio"]) == grown


def test_micro_batches(capsys):
    found = plan(capsys, "--examples", "10000", "--per-replica-batch", "64", "--replicas", "4", "--micro-batch", "16")
    assert (found["grow"]["micro_batch"], found["grow"]["accumulation"]) == (16, 4)
    assert (found["keep"]["per_replica_batch"], found["keep"]["accumulation"]) == (16, 1)


def test_knobs_by_flag(capsys):
    flags = [
        "--optimizer",
        "AdamW",
        "--beta-1",
        "0.95",
        "--beta-2",
        "0.98",
        "--epsilon",
        "1e-6",
        "--weight-decay",
        "0.1",
    ]
    averages = ["--ema-momentum", "0.999", "--ema-overwrite-frequency", "100", "--batch-norm"]
    found = plan(capsys, "--examples", "60000", "--per-replica-batch", "64", "--replicas", "8", *flags, *averages)
    assert knobs(found["grow"]) == pytest.approx(
        {
            "learning_rate": 0.001 * math.sqrt(8),
            "beta_1": 0.95,
            "beta_2": 0.98**8,
            "epsilon": 1e-6 / math.sqrt(8),
            "weight_decay": 0.1 * math.sqrt(8),
            "ema_momentum": 0.999**8,
            "ema_overwrite_frequency": 13,
            "BatchNormalization momentum": 0.99**8,
        }
    )
    assert all(knob["new"] == knob["old"] for knob in found["keep"]["knobs"])


def test_beta_1_on_request(capsys):
    flags = ["--examples", "60000", "--per-replica-batch", "64", "--replicas", "8", "--optimizer", "adam"]
    rows = {way: plan(capsys, *flags, "--adam-beta-1", way)["grow"]["knobs"] for way in ("keep", "memory")}
    kept, asked = ([row for row in rows[way] if row["name"] == "beta_1"] for way in rows)
    assert [(row["new"], row["rule"]) for row in kept] == [(0.9, "kept")]
    assert [(row["new"], row["rule"]) for row in asked] == [(pytest.approx(0.9**8), "m^r")]
    # What is kept is explained; what is merely unchanged is not.
    assert cli.main(["plan", *flags]) == 0
    assert "  beta_1: as SGD's momentum: beta_1^r (Malladi 2022; adam_beta_1='memory')" in capsys.readouterr().out


def test_the_schedules_own_warm_up(capsys):
    flags = ["--examples", "60000", "--per-replica-batch", "64", "--replicas", "8", "--warmup-steps", "500"]
    found = plan(capsys, *flags, "--decay-steps", "9000")
    assert [knob["name"] for knob in found["grow"]["knobs"]][:3] == [
        "learning_rate",
        "schedule",
        "schedule.warmup_steps",
    ]
    assert (knobs(found["keep"])["schedule.warmup_steps"], knobs(found["grow"])["schedule.warmup_steps"]) == (500, 62.5)
    measured = plan(capsys, *flags, "--rule", "adascale")
    assert knobs(measured["grow"])["schedule.warmup_steps"] == 500


def test_more_replicas_than_examples_to_keep(capsys):
    found = plan(capsys, "--examples", "10000", "--per-replica-batch", "4", "--replicas", "8")
    assert found["keep"] is None
    assert found["grow"]["global_batch"] == 32
    assert cli.main(["plan", "--examples", "10000", "--per-replica-batch", "4", "--replicas", "8"]) == 0
    shown = capsys.readouterr().out
    assert "impossible" in shown
    assert "Warning, keep the batch: 4 examples cannot be split over 8 replicas." in shown


BASE = ["--examples", "102400", "--replicas", "8"]
ADAM = ["--per-replica-batch", "16", "--optimizer", "adam"]
MEMORY = ["--optimizer", "adam", "--adam-beta-1", "memory"]


@pytest.mark.parametrize(
    ("arguments", "way", "warning"),
    [
        ([*BASE, "--per-replica-batch", "8", "--batch-norm"], "grow", "23.6 %"),
        ([*BASE, "--per-replica-batch", "8", "--batch-norm"], "grow", "24.8 / 27.3 / 34.7 % with 8 / 4 / 2"),
        ([*BASE, "--per-replica-batch", "64", "--batch-norm"], "keep", "batch_norm='auto' therefore"),
        ([*BASE, "--per-replica-batch", "64", "--micro-batch", "8", "--batch-norm"], "grow", "8 examples per replica"),
        (["--examples", "1000", "--replicas", "8", "--per-replica-batch", "16"], "grow", "12.8 % of the 1000 examples"),
        (
            ["--examples", "1024000", "--replicas", "64", "--per-replica-batch", "16"],
            "grow",
            "batch_ratio 64 is above 32",
        ),
        ([*BASE[:2], "--replicas", "17", "--per-replica-batch", "16", "--optimizer", "adam"], "grow", "2205.10287"),
        ([*BASE[:2], "--replicas", "17", "--per-replica-batch", "16", "--optimizer", "adam"], "grow", "17 is above 16"),
        ([*BASE, "--per-replica-batch", "16", "--critical-batch", "256"], "grow", "0.5 of the critical batch of 256"),
        # (1 + 128 / 256) / (1 + 16 / 256) times the examples, and an eighth of that in steps.
        ([*BASE, "--per-replica-batch", "16", "--critical-batch", "256"], "grow", "1.41 times the examples of a batch"),
        ([*BASE, "--per-replica-batch", "16", "--critical-batch", "256"], "grow", "0.176 of its steps, not 0.125"),
        (
            [*BASE, "--per-replica-batch", "16", "--critical-batch", "9.5", *MEMORY],
            "grow",
            "3 times the steps: beta_1. Leave out",
        ),
        ([*BASE, "--per-replica-batch", "16", "--clipped-share", "0.201"], "grow", "bites in 20.1 % of the steps"),
        ([*BASE, "--per-replica-batch", "16", "--warmup-steps", "159"], "grow", "shrinks to 19.875 steps, below 20"),
        # 2 / (1 - 0.999^8) = 250.9.
        ([*BASE, *ADAM, "--warmup-steps", "2000"], "grow", "shrinks to 250 steps, below 2 / (1 - beta_2) = 250.9"),
        ([*BASE, *ADAM, "--warmup-epochs", "0.2"], "grow", "The warm-up to the new rate shrinks to 160 steps"),
        ([*BASE, "--per-replica-batch", "16", "--optimizer", "lion"], "grow", "No paper gives a rule for Lion"),
        ([*BASE, "--per-replica-batch", "16", "--rule", "none"], "grow", "less progress per epoch"),
        ([*BASE, "--per-replica-batch", "16", "--rule", "adascale"], "grow", "worth 1 to 8 steps of the recipe"),
        ([*BASE, "--per-replica-batch", "16", "--epochs", "4"], "grow", "The warm-up of 5 epochs is longer"),
        (["--examples", "1797", "--replicas", "8", "--per-replica-batch", "32"], "grow", "7.125 reference steps"),
    ],
)
def test_warnings(capsys, arguments, way, warning):
    assert [text for text in plan(capsys, *arguments)[way]["warnings"] if warning in text]
    assert cli.main(["plan", *arguments]) == 0
    title = {"keep": "keep the batch", "grow": "grow the batch"}[way]
    [shown] = [
        line
        for line in capsys.readouterr().out.splitlines()
        if line.startswith(f"Warning, {title}") and warning in line
    ]
    assert shown.endswith((".", "it so."))


@pytest.mark.parametrize(
    "arguments",
    [
        [*BASE, "--per-replica-batch", "16", "--batch-norm"],
        [*BASE, "--per-replica-batch", "8"],
        ["--examples", "1280", "--replicas", "8", "--per-replica-batch", "16"],
        ["--examples", "1024000", "--replicas", "32", "--per-replica-batch", "16"],
        [*BASE, "--per-replica-batch", "16", "--epochs", "5"],
        [*BASE, "--per-replica-batch", "16", "--epochs", "1", "--warmup-epochs", "0"],
        [*BASE, "--per-replica-batch", "16", "--optimizer", "adagrad", "--rule", "sqrt"],
        [*BASE[:2], "--replicas", "16", *ADAM],
        [*BASE, "--per-replica-batch", "16", "--critical-batch", "257", *MEMORY],
        [*BASE[:2], "--replicas", "1", "--per-replica-batch", "16", "--critical-batch", "8", "--clipped-share", "1"],
        [*BASE, "--per-replica-batch", "16", "--clipped-share", "0.2"],
        [*BASE, "--per-replica-batch", "16", "--clipped-share", "0"],
        [*BASE, "--per-replica-batch", "16", "--warmup-steps", "160"],
        [*BASE, "--per-replica-batch", "16", "--warmup-steps", "10", "--rule", "adascale"],
        [*BASE, *ADAM, "--warmup-steps", "2008"],
        [*BASE, *ADAM, "--warmup-steps", "160", "--beta-2", "0"],
        [*BASE, *ADAM, "--warmup-steps", "160", "--beta-2", "0.5"],
        # Its beta_2 is of an average of gradients.
        [*BASE, "--per-replica-batch", "16", "--optimizer", "lion", "--warmup-steps", "160", "--beta-2", "0.9999"],
    ],
)
def test_no_warning_just_within(capsys, arguments):
    warnings = plan(capsys, *arguments)["grow"]["warnings"]
    assert [text for text in warnings if "No paper" not in text and "is worth" not in text] == []


def test_table(capsys):
    assert cli.main(["plan", *IMAGENET, "--epochs", "90"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split("  ")[0]: line.split() for line in lines}
    assert lines[0].split("  ")[-1] == "rule"
    assert rows["global batch"][-3:] == ["256", "256", "2048"]
    assert rows["learning_rate"][-5:] == ["0.1", "0.1", "0.8", "x", "r"]
    assert any(line.startswith("  learning_rate: rule 'linear' (Goyal et al. 2017") for line in lines)
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ([], "--examples, --replicas"),
        ([*BASE], "one of the arguments --per-replica-batch --global-batch is required"),
        ([*BASE, "--per-replica-batch", "8", "--global-batch", "8"], "not allowed with"),
        ([*BASE, "--per-replica-batch", "0"], "must be a positive integer. Received: '0'"),
        ([*BASE, "--per-replica-batch", "1.5"], "must be a positive integer"),
        ([*BASE, "--per-replica-batch", "8", "--optimizer", "sgdw"], "invalid choice: 'sgdw'"),
        ([*BASE, "--per-replica-batch", "8", "--rule", "cubic"], "invalid choice: 'cubic'"),
        ([*BASE, "--per-replica-batch", "8", "--learning-rate", "nan"], "must be a number, 0 or more. Received: 'nan'"),
        ([*BASE, "--per-replica-batch", "8", "--learning-rate", "fast"], "must be a number, 0 or more"),
        ([*BASE, "--per-replica-batch", "8", "--warmup-epochs", "-1"], "must be a number, 0 or more"),
        ([*BASE, "--per-replica-batch", "8", "--warmup-steps", "0"], "must be a positive integer"),
        ([*BASE, "--per-replica-batch", "8", "--critical-batch", "-1"], "must be a number, 0 or more"),
        ([*BASE, "--per-replica-batch", "8", "--critical-batch", "large"], "must be a number, 0 or more"),
        ([*BASE, "--per-replica-batch", "8", "--clipped-share", "nan"], "must be a number, 0 or more"),
        ([*BASE, "--per-replica-batch", "8", "--adam-beta-1", "0.9"], "invalid choice: '0.9'"),
    ],
)
def test_refused_by_the_parser(arguments, shown, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["plan", *arguments])
    assert exit_.value.code == 2
    assert shown in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ([*BASE, "--per-replica-batch", "8", "--beta-1", "0.9"], "ScalingError: SGD must have the knob"),
        ([*BASE, "--per-replica-batch", "8", "--optimizer", "adam", "--beta-1", "2"], "ScalingError: `beta_1` must be"),
        ([*BASE, "--per-replica-batch", "8", "--critical-batch", "0"], "ScalingError: `critical_batch` must be"),
        ([*BASE, "--per-replica-batch", "8", "--clipped-share", "20"], "ScalingError: `clipped_share` must be"),
        ([*BASE, "--global-batch", "4", "--reference-batch", "8"], "BatchError: `global_batch` must be at least"),
    ],
)
def test_refused_with_one_message(arguments, shown, capsys):
    assert cli.main(["plan", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(shown)
    assert "\nReceived: " in err


def test_answers_at_once_and_without_tensorflow():
    code = (
        "import sys, tfscale.cli; tfscale.cli.main(sys.argv[1:]); "
        "assert not {'tensorflow', 'keras', 'numpy'} & {*sys.modules}"
    )
    command = [sys.executable, "-c", code, "plan", *IMAGENET, "--optimizer", "adamw", "--epochs", "90"]

    def run():
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)

    assert in_starts_of_python(run) < AT_ONCE

"""Whole runs of `verify --bitwise`; the scripts are in cases_scripts.py."""

import json

import pytest

import tfscale
from tests.parity import cases_scripts
from tests.repository import ROOT
from tfscale import ParityError, cli
from tfscale.parity import command

SCRIPT = "tests.parity.cases_scripts"
QUANTITIES = ["data", "starting weights", "epoch logs", "weights", "optimizer state", "evaluate", "predict"]


def _call(build, data, *argv):
    return cli.main(["verify", f"{SCRIPT}:{build}", f"{SCRIPT}:{data}", "--bitwise", *argv])


def test_what_draws_is_equal_to_the_bit_on_devices_and_workers(capsys):
    argv = [f"{ROOT}/tests/parity/cases_scripts.py:drawing", f"{SCRIPT}:images", "--bitwise", "--epochs", "2", "--json"]
    assert cli.main(["verify", *argv, "--replicas", "1,3", "--workers", "2"]) == 0
    output = capsys.readouterr()
    report = json.loads(output.out)
    assert report["equal"]
    assert report["title"] == (
        f"cases_scripts.py:drawing on {SCRIPT}:images, 2 epochs of 4 steps, global batch 24, 4 logical replicas, seed 0"
    )
    shown = [(row["run"], row["quantity"], row["num_differing"]) for row in report["rows"]]
    assert shown == [(run, quantity, 0) for run in ("3 devices", "2 workers") for quantity in QUANTITIES]
    counts = {row["quantity"]: row["num_arrays"] for row in report["rows"] if row["run"] == "3 devices"}
    # 8 weights and 14 variables of Adam, after each of two epochs and at the end.
    assert (counts["starting weights"], counts["weights"], counts["optimizer state"]) == (8, 3 * 8, 3 * 14)
    assert set(report["depends_on"]) == {"tensorflow", "keras", "devices", "onednn"}
    assert 'run with batch_norm="local"' in report["notes"][0]
    assert output.err.splitlines() == ["running 1 device", "running 3 devices", "running 2 workers"]


def test_a_model_that_fit_builds_has_starting_weights():
    report = tfscale.verify_bitwise(f"{SCRIPT}:not_built", f"{SCRIPT}:rows", num_replicas=(2,))
    assert report.equal
    assert {row.quantity: row.num_arrays for row in report.rows}["starting weights"] == 2


def test_what_depends_on_the_devices_is_named_by_its_first_array(capsys):
    assert _call("counting_devices", "rows", "--replicas", "1,2") == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "Differs from 1 device: 2 devices, first in epoch logs after epoch 1, 'loss': 1 of 1 element, " in shown
    assert "On one device a second run is equal to the first, so that the devices are the reason" in shown
    assert "Bits depend besides on what is here: tensorflow " in shown


def test_what_nobody_seeds_is_told_from_the_devices():
    report = tfscale.verify_bitwise(cases_scripts.from_nobody, cases_scripts.rows, num_replicas=(2,))
    assert not report.equal
    assert (report.first["2 devices"].quantity, report.first["2 devices"].name) == ("epoch logs", "loss")
    assert {row.quantity: row.verdict for row in report.rows} == {
        **dict.fromkeys(QUANTITIES, "differs"),
        **dict.fromkeys(QUANTITIES[:2], "equal"),
    }
    [cause] = report.causes
    assert "on one device a second run differs from the first, too" in cause


@pytest.mark.parametrize(
    ("build", "data", "first", "cause"),
    [
        ("counting_devices", "unseeded_rows", ("data", "all examples"), "`data` gave the runs other examples"),
        ("unseeded_weights", "rows", ("starting weights", "sequential/first/kernel"), "`build` makes other weights"),
    ],
)
def test_what_differs_before_the_first_step(build, data, first, cause):
    report = tfscale.verify_bitwise(f"{SCRIPT}:{build}", f"{SCRIPT}:{data}", num_replicas=(2,))
    found = report.first["2 devices"]
    assert (found.quantity, found.name) == first
    assert f"Likeliest cause: {cause}" in report.causes[0]


@pytest.mark.parametrize(
    ("build", "argv", "shown"),
    [
        ("accumulating", (), "ModelError: With `deterministic=True` a run must not depend on the number of devices"),
        ("eagerly", (), "Received: model 'sequential' with run_eagerly=True"),
        ("mixing", ("--replicas", "2"), "Received: a step in which rows of the batch meet"),
        ("unlike_one_replica", ("--replicas", "2"), "Received: a step in which rows of the batch meet"),
        ("pairs", (), "ModelError: `logical_replicas` needs Keras's own `train_step`"),
        ("counting_devices", ("--logical-replicas", "3"), "BatchError: "),
        ("failing", (), "Received: KeyError: 'on purpose' Make the script run without tfscale first."),
    ],
)
def test_what_is_refused_has_its_own_error(build, argv, shown, capsys):
    assert _call(build, "rows", *argv) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert shown in output.err
    assert "Traceback" not in output.err or build == "failing"


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["--bitwise", "--against", "keras"], "Received: --bitwise and --against keras. Leave one of them out."),
        (["--logical-replicas", "4"], "Received: --logical-replicas 4. Add --bitwise, or leave it out."),
        (["--bitwise", "--replicas", "1"], "Received: num_replicas=(1,), and no `workers`."),
        (["--bitwise", "--logical-replicas", "1"], "Received: logical_replicas=1."),
        (["--bitwise", "--logical-replicas", "2", "--replicas", "3"], "Compare fewer, or give logical_replicas=3"),
        (["--bitwise", "--logical-replicas", "2", "--workers", "3"], "Compare fewer, or give logical_replicas=3"),
        (["--bitwise", "--workers", "1"], "`workers` must be an integer of 2 or more"),
    ],
)
def test_wrong_use(argv, shown, capsys):
    assert cli.main(["verify", f"{SCRIPT}:pairs", f"{SCRIPT}:rows", *argv]) == 2
    assert shown in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [{"epochs": 0}, {"seed": -1}, {"timeout_s": 0}, {"logical_replicas": True}, {"num_replicas": (2, 2)}]
)
def test_refused_before_anything_starts(arguments):
    [name] = arguments
    with pytest.raises(ParityError, match=f"^`{name}` .*\nReceived: {name}="):
        tfscale.verify_bitwise(f"{SCRIPT}:pairs", f"{SCRIPT}:rows", **arguments)


def test_call_while_the_script_is_imported(monkeypatch):
    monkeypatch.setenv("TFSCALE_VERIFY_RUN", "1")
    with pytest.raises(ParityError, match="if __name__ == '__main__'"):
        tfscale.verify_bitwise(f"{SCRIPT}:pairs", f"{SCRIPT}:rows")


@pytest.mark.parametrize(
    ("argv", "function", "replicas"),
    [([], "verify", (1, 2, 3)), (["--bitwise"], "verify_bitwise", None), (["--replicas", "2"], "verify", (2,))],
)
def test_default_numbers_of_devices(argv, function, replicas, monkeypatch):
    class StoppedError(Exception):
        pass

    def stop(*targets, **given):
        raise StoppedError(given["num_replicas"])

    monkeypatch.setattr(command, function, stop)
    with pytest.raises(StoppedError) as stopped:
        cli.main(["verify", "a:b", "c:d", *argv])
    assert stopped.value.args == (replicas,)

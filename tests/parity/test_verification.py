"""Whole runs of `verify`; the scripts are in cases_scripts.py."""

import os

import pytest

import tfscale
from tests.parity import cases_scripts
from tests.repository import ROOT
from tfscale import ParityError, cli

SCRIPT = "tests.parity.cases_scripts"
QUANTITIES = ["weights", "optimizer state", "epoch metrics", "evaluate", "predict"]


def _verdicts(report, run):
    return {row.quantity: row.verdict for row in report.rows if row.run == run}


def test_equal_where_plain_keras_differs(capsys):
    """Clipping, BatchNormalization, dropout, a shuffle, and a last batch that 3 does not divide."""
    argv = ["verify", f"{ROOT}/tests/parity/cases_scripts.py:convnet", f"{SCRIPT}:images"]
    assert cli.main([*argv, "--replicas", "1,3", "--against", "keras", "--epochs", "2"]) == 0
    output = capsys.readouterr()
    table = output.out.splitlines()
    assert table[0] == (f"cases_scripts.py:convnet on {SCRIPT}:images, 2 epochs of 4 steps, global batch 24")
    verdicts = [word for line in table[2:17] for word in line.split() if word in ("equal", "differs")]
    assert verdicts == ["equal"] * 10 + ["differs"] * 5
    assert "Equal: no relative difference above 1e-05" in output.out
    assert "gradients are clipped before they are added up" in output.out
    assert "switched off in every run: dropout (Dropout)" in output.out
    runs = [line.partition(";") for line in output.err.splitlines()]
    assert [run for run, _, _ in runs] == [
        "running plain Keras on one device",
        "running tfscale, 1 replica",
        "running tfscale, 3 replicas",
        "running keras, 3 replicas",
    ]
    # How long the first one takes is not known before.
    assert [left.startswith(" about ") for _, _, left in runs] == [False, True, True, True]


def test_workers_are_equal_and_a_bias_without_influence_is_not_counted(monkeypatch, tmp_path):
    monkeypatch.setenv("PROCESSES_FILE", str(tmp_path / "processes"))
    report = tfscale.verify(
        f"{SCRIPT}:biased_convnet", f"{SCRIPT}:told_images", num_replicas=(), workers=2, against="keras"
    )
    assert _verdicts(report, "tfscale, 2 workers") == dict.fromkeys(QUANTITIES, "equal")
    assert report.equal
    # Plain Keras does not start on several workers; that fails nothing.
    assert _verdicts(report, "keras, 2 workers") == {"run": "crashed"}
    excused = [note for note in report.notes if "not counted" in note]
    assert len(excused) == 1
    assert "conv2d/bias" in excused[0]
    # Runs in one process are forks of a server; workers have processes that are started anew.
    processes = [line.split() for line in (tmp_path / "processes").read_text().splitlines()]
    assert len({process for process, _ in processes}) == len(processes)
    forks = [parent for _, parent in processes if parent != str(os.getpid())]
    assert (len(forks), len(set(forks)), len(processes)) == (2, 1, 6)


@pytest.mark.parametrize(
    ("build", "data", "decides"),
    [
        ("amplifying", "images", True),
        ("amplifying_in_float32", "images", False),
        # A right program that many write: its predictions are off by more than the tolerance.
        ("biased_dense_with_adam", "many_rows", True),
    ],
)
def test_what_rounding_makes_of_a_run_is_told_from_a_fault_in_float64(build, data, decides):
    report = tfscale.verify(f"{SCRIPT}:{build}", f"{SCRIPT}:{data}", num_replicas=(3,))
    assert report.equal is decides
    [cause] = report.causes
    assert ("in float64 the same runs agree to" in cause) == decides
    assert ("Equal in float64: " in str(report)) == decides
    verdicts = _verdicts(report, "tfscale, 3 replicas")
    assert verdicts["weights"] == verdicts["predict"] == ("rounding" if decides else "differs")
    assert [row.difference > 1e-4 for row in report.rows if row.quantity == "weights"] == [True]


def test_loss_over_pairs_is_equal_in_a_graph():
    assert tfscale.verify(cases_scripts.pairs, cases_scripts.rows, num_replicas=(2,)).equal


def test_what_a_model_without_call_has_is_compared():
    report = tfscale.verify(cases_scripts.without_call, cases_scripts.unlabelled, num_replicas=(3,))
    verdicts = _verdicts(report, "tfscale, 3 replicas")
    assert report.equal
    assert verdicts == dict.fromkeys(["weights", "optimizer state", "epoch metrics"], "equal")
    assert [note.split(":", 1)[0] for note in report.notes] == ["evaluate is not compared", "predict is not compared"]


def test_loss_over_pairs_differs_eagerly(capsys):
    report = tfscale.verify(cases_scripts.pairs_eagerly, cases_scripts.rows, num_replicas=(2,))
    assert not report.equal
    assert _verdicts(report, "tfscale, 2 replicas")["weights"] == "differs"
    [cause] = report.causes
    assert "own train_step computes a loss that is no mean over its examples" in cause
    assert "(This is no rounding: in float64 the same run differs by " in cause
    assert capsys.readouterr().out == f"{report}\n"


@pytest.mark.parametrize(
    ("build", "data", "shown"),
    [
        ("not_compiled", "rows", "must return a compiled model"),
        ("diverging", "rows", "must train to finite weights"),
        ("failing", "rows", "Received: KeyError: 'on purpose' Make the script run"),
        ("pairs", "dying", "exit status 7"),
        ("not_to_be_traced", "unlabelled", "Call each of its layers on a batch in `build`"),
    ],
)
def test_script_that_cannot_be_compared(build, data, shown):
    with pytest.raises(ParityError) as error:
        tfscale.verify(f"{SCRIPT}:{build}", f"{SCRIPT}:{data}")
    assert shown in str(error.value)
    if data == "dying":
        assert "last words" in str(error.value)


def test_deadline():
    with pytest.raises(ParityError, match=r"no result within 1 s; it was ended"):
        tfscale.verify(f"{SCRIPT}:sleeping", f"{SCRIPT}:rows", timeout_s=1)


def test_more_replicas_than_examples_in_a_step():
    with pytest.raises(ParityError, match=r"must be at most the global batch \(16\)"):
        tfscale.verify(f"{SCRIPT}:pairs", f"{SCRIPT}:rows", num_replicas=(17,))


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_replicas": 0},
        {"workers": 1},
        {"against": "jax"},
        {"global_batch": 0},
        {"global_batch": 2.5},
        {"epochs": 0},
        {"epochs": True},
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
        {"seed": -1},
        {"seed": "x"},
        {"tolerance": -1.0},
        {"tolerance": float("nan")},
        {"tolerance": "1"},
    ],
)
def test_refused_before_anything_starts(arguments):
    [name] = arguments
    with pytest.raises(ParityError, match=f"^`{name}` .*\nReceived: {name}="):
        tfscale.verify(f"{SCRIPT}:pairs", f"{SCRIPT}:rows", **arguments)


def test_call_while_the_script_is_imported(monkeypatch):
    monkeypatch.setenv("TFSCALE_VERIFY_RUN", "1")
    with pytest.raises(ParityError, match="if __name__ == '__main__'"):
        tfscale.verify(f"{SCRIPT}:pairs", f"{SCRIPT}:rows")

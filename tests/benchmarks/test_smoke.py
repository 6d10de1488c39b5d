"""One tiny pair runs from start to table; the arithmetic behind the table is checked by hand."""

import dataclasses
import json
import subprocess
import sys
import time

import pytest

from benchmarks import environments
from benchmarks.__main__ import _parse, _plan, main
from benchmarks.check.plan import FirstStep
from benchmarks.check.report import Row
from benchmarks.contenders import AS_IT_COMES, GROUPS, Bar, Contender, Heat, heats
from benchmarks.environments import JAX_ENVIRONMENT, python_of
from benchmarks.heat import compare, steps_per_epoch
from benchmarks.processes import ContenderError, Measurement, running
from tests.processes import children
from tests.repository import ROOT

# `fit` on a machine that others use as well: what is tested is that it ends with a table.
_TIMEOUT_S = 120
JAX_IS_HERE = (JAX_ENVIRONMENT / "installed").exists()


def test_quick_run_prints_a_table_and_keeps_the_blocks(tmp_path):
    results = tmp_path / "results.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", "--results", str(results)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    # 1: two short rounds may miss the bar, here where others use the machine.
    assert done.returncode in (0, 1), done.stderr
    assert "2 logical replicas: tfscale fit" in done.stdout, done.stderr
    (record,) = map(json.loads, results.read_text().splitlines())
    (row,) = record["rows"]
    assert row["ratio_min"] <= row["ratio"] <= row["ratio_max"]
    assert record["versions"].keys() >= {"tensorflow", "keras"}
    assert [len(each["blocks"]) for each in record["measured"]] == [2, 2]
    losses = [each["blocks"][0]["loss"] for each in record["measured"]]
    assert all(0 < loss < 3 for loss in losses)


def test_ratios_are_taken_within_a_round_and_per_example():
    two_workers = Contender("two", "tfscale", num_workers=2)
    heat = Heat("c", "title", (two_workers, Contender("one", "tfscale")), (Bar("one", at_least=1),))
    ours = [_measurement(steps, 128, rss=11) for steps in (10, 20, 30)]
    theirs = [_measurement(steps, 64, rss=10) for steps in (10, 10, 60)]
    row = compare(heat, "mlp", heat.bars[0], ours, theirs)
    assert (row.ratio_min, row.ratio, row.ratio_max) == (1.0, 2.0, 4.0)
    assert (row.cpu_ratio, row.memory_ratio, row.passed) == (0.5, 1.1, True)


@pytest.mark.parametrize(
    ("ratio", "at_least", "memory", "passed"),
    [(1.0, 1.0, 2.0, True), (0.9, 1.0, 1.0, False), (0.9, None, 9.0, None)],
)
def test_verdict(ratio, at_least, memory, passed):
    assert _row(ratio, memory, Bar("b", at_least)).passed is passed


def test_memory_counts_where_it_is_judged():
    assert _row(1.0, 1.06, Bar("b", 1.0, memory=True)).passed is False
    assert _row(1.0, 1.04, Bar("b", 1.0, memory=True)).passed is True


@pytest.mark.parametrize(("steps_per_s", "steps_per_call", "steps"), [(90, 1, 60), (90, 16, 64), (0.1, 16, 16)])
def test_epochs_are_whole_calls(steps_per_s, steps_per_call, steps):
    assert steps_per_epoch(steps_per_s, 2.0, steps_per_call) == steps


def test_every_bar_names_a_contender_and_both_sides_take_as_many_steps_per_call():
    for heat in [heat for group in GROUPS for heat in heats(group)]:
        labels = [each.label for each in heat.contenders]
        assert len(set(labels)) == len(labels)
        assert {bar.against for bar in heat.bars} <= set(labels)
        assert len({each.steps_per_call for each in heat.contenders}) == 1


def test_peers_that_are_not_here_are_left_out():
    libraries = [each.library for group in GROUPS for heat in heats(group) for each in heat.contenders]
    assert {"jax", "torch", "tf_keras"} < set(libraries)
    left = [heat for group in GROUPS for heat in heats(group, tf_keras=False, torch=False, jax=False)]
    assert {each.library for heat in left for each in heat.contenders} == {"tfscale", "keras", "raw", "raw_own_input"}


def test_jax_that_cannot_be_installed_is_left_out_by_name(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(environments, "JAX_ENVIRONMENT", tmp_path / "jax")
    monkeypatch.setattr(environments, "JAX_PACKAGES", (str(tmp_path / "nothing.whl"),))
    plan = _plan(_parse(["--only", "b"]))
    assert {each.library for heat, _ in plan for each in heat.contenders} == {"tfscale", "keras"}
    told = capsys.readouterr().err
    assert "Keras on JAX is left out: " in told
    assert "nothing.whl" in told


@pytest.mark.skipif(not JAX_IS_HERE, reason="Keras on JAX is not installed: `make bench` installs it in .venv-jax")
def test_keras_on_jax_trains_the_same_model_on_two_devices(tmp_path):
    contenders = [Contender("jax", "jax", 2, distributed=True), Contender("keras", "keras", batch=128)]
    with running(contenders, "mlp", [python_of(each) for each in contenders], _TIMEOUT_S) as (jax, keras):
        on_jax, on_keras = jax.run(4, 1), keras.run(4, 1)
    assert on_jax.versions.keys() == {"keras", "jax", "numpy"}
    # Weights of another generator: as large, and so is the loss.
    assert on_jax.loss == pytest.approx(on_keras.loss, rel=0.2)


def test_what_comes_as_it_is_has_no_number_of_steps_given():
    for heat in [heat for group in GROUPS for heat in heats(group) if heat.title.endswith(AS_IT_COMES)]:
        assert next(each.chosen_steps for each in heat.contenders if each.library == "tfscale") == "auto"
        assert all(each.steps_per_call == 1 for each in heat.contenders)


def test_a_contender_that_fails_or_is_late_is_ended_and_shown(tmp_path):
    contender = Contender("c", "tfscale")
    failing, deaf = tmp_path / "failing", tmp_path / "deaf"
    for path, text in ((failing, "echo on purpose >&2; exit 3"), (deaf, "trap '' TERM; sleep 60")):
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    for python, shown in ((failing, "on purpose"), (deaf, "deadline")):
        start_s = time.monotonic()
        with (
            pytest.raises(ContenderError, match=shown),
            running([contender], "mlp", [python], timeout_s=1) as (one,),
        ):
            one.run(1, 1)
        assert time.monotonic() - start_s < 30
    assert children() == set()


def test_first_steps_with_and_without_the_check_end_with_a_table():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.check", "--model", "own train_step", "--replicas", "2", "--rounds", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    # 0: the check was made where it was asked for, only there, and both sides logged the same loss.
    assert done.returncode == 0, done.stderr
    assert 'check="always"' in done.stdout
    assert "the MLP, own train_step  2" in done.stdout


def test_medians_and_ratios_of_first_steps():
    pairs = [(_first_step(2.0), _first_step(seconds, 1.0)) for seconds in (8.0, 4.0, 5.0)]
    row = Row("mlp", 2, tuple(pairs))
    assert row.cells()[2:5] == ("2.00 [2.00 .. 2.00]", "5.00 [4.00 .. 8.00]", "2.50 [2.00 .. 4.00]")
    assert row.faults() == []
    assert Row("mlp", 2, tuple(pairs[:1])).cells()[4] == "4.00"


@pytest.mark.parametrize(
    ("num_replicas", "checked", "shown"),
    [
        (2, {}, "0 and 0 checks, not 0 and 1"),
        (1, {"check_s": (1.0,)}, "0 and 1 checks, not 0 and 0"),
        (2, {"check_s": (1.0,), "loss": 2.1}, "a loss of 2.1 with the check, 2.0 without"),
        (2, {"check_s": (1.0,), "messages": ("it could not be checked (why)",)}, "could not be checked (why)"),
    ],
)
def test_first_steps_that_are_not_what_was_to_be_compared(num_replicas, checked, shown):
    without = _first_step(1.0)
    row = Row("mlp", num_replicas, ((without, dataclasses.replace(without, **checked)),))
    assert len(row.faults()) == 1
    assert shown in row.faults()[0]


def test_unknown_group_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["--only", "z"])
    assert "invalid choice" in capsys.readouterr().err


def _measurement(steps_per_s, global_batch, rss):
    return Measurement(steps_per_s * global_batch, steps_per_s, 1.0, rss, 0.0, {})


def _first_step(seconds, *check_s):
    return FirstStep(seconds, cpu_s=1.0, check_s=check_s, loss=2.0, messages=(), versions={})


def _row(ratio, memory, bar):
    heat = Heat("a", "title", (Contender("a", "tfscale"), Contender("b", "keras")), (bar,))
    ours = [_measurement(ratio * 100, 64, memory * 100)]
    return compare(heat, "mlp", bar, ours, [_measurement(100, 64, 100)])

"""One tiny round runs from start to picture; the verdicts are checked by hand."""

import json
import subprocess
import sys

import pytest

from benchmarks.equal_progress import betas
from benchmarks.equal_progress.published import PUBLISHED
from benchmarks.equal_progress.report import Row, Run, Sample, compare, render_published
from tests.repository import ROOT

_TIMEOUT_S = 300


def test_quick_run_prints_tables_and_draws(tmp_path):
    command = [sys.executable, "-m", "benchmarks.equal_progress", "--quick", "--seeds", "1", "--results", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_TIMEOUT_S)
    # 1: after one epoch nothing has to be equal.
    assert done.returncode in (0, 1), done.stderr
    for recipe in ("SGD, cosine", "AdamW, step decay", "plain SGD on 2 replicas"):
        assert recipe in done.stdout
    runs = [Run(**json.loads(line)) for line in (tmp_path / "equal_progress.jsonl").read_text().splitlines()]
    # Four recipes and the published experiment, on 1 replica and twice on 2.
    assert len(runs) == 15
    assert all(0 <= run.accuracy <= 1 and run.loss for run in runs)
    assert (tmp_path / "equal_progress.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("ratio", "scaled", "alone", "passed"),
    [(2, 95.0, 0.0, True), (4, 94.0, 0.0, True), (4, 93.9, 0.0, False), (8, 90.0, 89.0, True), (8, 89.0, 89.0, False)],
)
def test_verdict(ratio, scaled, alone, passed):
    # Mean 95, standard error 1.
    reference = Sample((94.0, 96.0))
    assert (reference.mean, reference.standard_error) == pytest.approx((95.0, 1.0))
    assert Row("", ratio, reference, Sample((scaled,)), Sample((alone,))).passed is passed


def test_rows_take_the_runs_that_belong_together():
    runs = [
        Run("r", 1, True, 0, 0.9, [1.0], [10]),
        Run("r", 2, True, 0, 0.8, [1.0], [10]),
        Run("r", 2, False, 0, 0.7, [1.0], [10]),
        Run(PUBLISHED, 1, True, 0, 0.5, [1.0], [10]),
    ]
    [row] = compare(runs)
    assert [sample.mean for sample in (row.reference, row.scaled, row.left_alone)] == pytest.approx([90, 80, 70])


def test_distance_of_loss_curves():
    e = 2.718281828459045
    curves = {(1, True): [1.0, 0.5], (2, True): [1.0, 0.5], (2, False): [e, 0.5 * e]}
    runs = [Run(PUBLISHED, n, scaled, 0, 0.5, loss, [10, 20]) for (n, scaled), loss in curves.items()]
    lines = render_published(runs).splitlines()
    assert lines[2].split()[-2:] == ["1.3591", "1.000"]
    assert lines[3].split()[-2:] == ["0.5000", "0.000"]


def test_beta_1_is_better_kept_on_a_batch_16_times_larger():
    # At half of the best rate of the small batch, grown by the rule; seeds that no table has.
    steps = {
        way: betas.measure(betas.grown(way, 16, 0.008, is_by_rule=True), 16, range(900, 903))[0] for way in betas.WAYS
    }
    assert betas.grown("keep", 16, 0.008)["beta_1"] == 0.9
    assert steps["keep"] * 1.25 < steps["memory"]

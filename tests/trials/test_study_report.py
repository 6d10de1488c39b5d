"""The picture and the page of a study have every trial, and JSON has numbers."""

import json
import math

import pytest

from tfscale.study import Trial, TrialResult, fit
from tfscale.trials.study_report import draw, study_to_json, write_report

LEFT = [Trial(16, 8, 0), Trial(16, 9, 0), Trial(64, 8, 0)]


@pytest.fixture
def results():
    rows = []
    for batch in (16, 64, 256, 1024):
        for point in range(8):
            cost = 1 + abs(point - 3)
            trial, steps = Trial(batch, point, 0, {"rate": 2.0**point}), 20 * (1 + 96 / batch) * cost
            rows.append(TrialResult(trial, steps, "reached", evaluations=((1, 9.0), (math.ceil(steps), 0.1))))
    # A batch that never got there, a trial that did not, and one that failed at once.
    rows += [TrialResult(Trial(4, p, 0, {"rate": 1.0}), math.inf, "budget", evaluations=((70, 1.0),)) for p in range(8)]
    rows[0] = TrialResult(rows[0].trial, math.inf, "2x behind", evaluations=((1, 9.0), (55, 3.0)))
    rows[1] = TrialResult(rows[1].trial, math.inf, "ValueError: no")
    return rows


def test_every_trial_is_in_the_picture(results):
    figure = draw(fit(results, draws=20), results, "a study")
    steps, _ = figure.axes
    reached, missed = (each.get_offsets() for each in steps.collections[:2])
    assert len(reached) == 30
    assert sorted(map(tuple, missed)) == [(4, 70)] * 8 + [(16, 55)]
    labels = [text.get_text() for text in steps.get_legend().get_texts()]
    assert "30 trials that reached it" in labels
    assert "10 that did not, where they ended" in labels


def test_every_regime_can_be_read(results):
    figure = draw(fit(results, draws=20), results, "a study")
    steps, _ = figure.axes
    figure.canvas.draw()
    names = {each.get_text(): each.get_window_extent() for each in steps.texts}
    assert list(names) == ["perfect", "diminishing", "exhausted"]
    # Inside, the legend may lie over them.
    inside = [steps.get_window_extent(), steps.title.get_window_extent()]
    assert not [name for name, box in names.items() if box.count_overlaps(inside)]


def test_the_page_has_every_batch_and_what_was_left(results, tmp_path):
    study = fit(results, draws=20)
    write_report(tmp_path, study, results, LEFT, title="a study", not_tried="others.")
    page = (tmp_path / "study.html").read_text()
    assert "<tr><td>4</td><td>not reached</td>" in page
    assert "<td>0 of 8</td>" in page
    assert "<td>6 of 8</td>" in page
    assert "40 trials: 1 2x behind, 1 ValueError: no, 8 budget, 30 reached." in page
    assert "3 trials of this round were not run, at batches 16, 64: the hours were over" in page
    write_report(tmp_path, study, results, [], title="a study", not_tried="others.")
    assert "were not run" not in (tmp_path / "study.html").read_text()


def test_json_has_numbers(results):
    study = fit(results, draws=20)
    # What has no end is null: JSON knows no infinity.
    found = json.loads(json.dumps(study_to_json(study, results, LEFT, "runs/s"), allow_nan=False))
    assert [row["batch"] for row in found["batches"]] == [4, 16, 64, 256, 1024]
    first, second = found["batches"][:2]
    assert first == {
        "batch": 4, "trials": 8, "reached": 0, "steps": None, "examples": None, "law_steps": study.law.steps(4),
        "parameters": None,
    }  # fmt: skip
    assert (second["reached"], second["parameters"]) == (6, {"rate": 8.0})
    assert second["steps"] == pytest.approx(140)
    assert second["examples"] == pytest.approx(16 * 140)
    assert {name: found[name] for name in ("s_min", "e_min", "rms", "exponent")} == {
        "s_min": study.s_min, "e_min": study.e_min, "rms": study.rms, "exponent": study.law.exponent,
    }  # fmt: skip
    assert found["regimes"]["exhausted"] == [4 * study.b_crit, None]
    assert found["cautions"] == list(study.cautions)
    assert found["reasons"] == {"2x behind": 1, "ValueError: no": 1, "budget": 8, "reached": 30}
    assert (found["trials"], found["trials_left"]) == (40, 3)

"""Spaces, samples, rows: without a process."""

import json
import math

import pytest

from tfscale import StudyError
from tfscale.sweeps.outcome import Outcome, best_of, read_outcome, write_csv, write_outcome
from tfscale.sweeps.sampling import make_sampler
from tfscale.sweeps.space import draw, parse_space, read_space
from tfscale.sweeps.trial import Pruned, SweepTrial, is_behind

SPACE = {"rate": {"low": 1e-4, "high": 1.0, "log": True}, "width": {"low": 2, "high": 8}, "kind": ["a", "b"], "one": 3}


def test_draws_are_within_and_spread():
    rows = [draw(parse_space(SPACE), number, 1) for number in range(400)]
    assert all(1e-4 <= row["rate"] <= 1 and row["one"] == 3 for row in rows)
    assert {row["width"] for row in rows} == set(range(2, 9))
    assert {row["kind"] for row in rows} == {"a", "b"}
    # Half of the logarithms lie below the middle one.
    assert 160 < sum(row["rate"] < 1e-2 for row in rows) < 240
    assert draw(parse_space(SPACE), 7, 1) == rows[7] != draw(parse_space(SPACE), 7, 2)


def test_whole_numbers_by_factors_have_both_ends():
    space = parse_space({"n": {"low": 1, "high": 4, "log": True}})
    counts = [sum(draw(space, i, 0)["n"] == n for i in range(800)) for n in (1, 2, 3, 4)]
    # Each has the logarithms from half below it to half above.
    for n, count in zip((1, 2, 3, 4), counts, strict=True):
        share = math.log((n + 0.5) / (n - 0.5)) / math.log(4.5 / 0.5)
        assert abs(count - 800 * share) < 4 * math.sqrt(800 * share * (1 - share))


@pytest.mark.parametrize("name", ["space.yaml", "space.json", "space.py"])
def test_a_space_in_a_file(name, tmp_path):
    texts = {
        "space.yaml": "rate: {low: 1e-4, high: 1.0, log: true}\nwidth: {low: 2, high: 8}\nkind: [a, b]\none: 3\n",
        "space.json": json.dumps(SPACE),
        "space.py": f"SPACE = {SPACE!r}",
    }
    (tmp_path / name).write_text(texts[name])
    assert read_space(str(tmp_path / name)) == parse_space(SPACE)


@pytest.mark.parametrize(
    "given",
    [
        {}, None, [1], {"a b": 1}, {"trial": 1}, {3: 1}, {"x": []}, {"x": [[1]]}, {"x": {"low": 2, "high": 1}},
        {"x": {"low": 0, "high": 1, "log": True}}, {"x": {"low": 1}}, {"x": {"low": 1, "high": math.nan}},
        {"x": {"low": 1, "high": 2, "step": 1}}, {"x": {"low": "a", "high": 2}}, {"x": {"low": True, "high": 2}},
        {"x": {"low": 1, "high": 2, "log": 1}},
    ],
)  # fmt: skip
def test_spaces_that_are_none(given):
    with pytest.raises(StudyError, match="Received: "):
        parse_space(given)


@pytest.mark.parametrize(("name", "text"), [("s.yaml", "a: ["), ("s.json", "{"), ("s.py", "1 +"), ("s.py", "A = 1")])
def test_files_that_are_none(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(StudyError, match="A space must be a file that can be read"):
        read_space(str(tmp_path / name))
    with pytest.raises(StudyError, match="A space must be a file that can be read"):
        read_space(str(tmp_path / "none.yaml"))


def test_rows_come_back(tmp_path):
    rows = [Outcome(1, {"x": 0.5, "kind": "a"}, "ended", 2.0), Outcome(0, {"x": 1}, "failed", None, "Error: a,b")]
    for row in rows:
        write_outcome(tmp_path, row)
    assert [read_outcome(path) for path in sorted(tmp_path.glob("*.json"))] == rows[::-1]
    write_csv(tmp_path / "sweep.csv", rows)
    assert (tmp_path / "sweep.csv").read_text() == (
        "number,parameter:kind,parameter:x,state,value,reason,seconds,device\n"
        '0,,1,failed,,"Error: a,b",0.0,\n1,a,0.5,ended,2.0,,0.0,\n'
    )
    assert best_of(rows, "min") == rows[0]
    assert best_of(rows[1:], "max") is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"number": 3, "parameters": {}, "state": "ended", "value": null}'])
def test_rows_that_are_none(text, tmp_path):
    (tmp_path / "000003.json").write_text(text)
    with pytest.raises(StudyError, match="Remove the file"):
        read_outcome(tmp_path / "000003.json")


def test_a_trial_is_ended_when_it_is_behind(tmp_path):
    for number in range(4):
        SweepTrial(number, tmp_path, direction="min", prunes=True).report(1, float(number))
    SweepTrial(4, tmp_path, direction="min", prunes=True).report(1, 1.0)
    with pytest.raises(Pruned, match="behind the median at step 1"):
        SweepTrial(5, tmp_path, direction="min", prunes=True).report(1, 2.0)
    SweepTrial(6, tmp_path, direction="min", prunes=False).report(1, 9.0)
    assert is_behind(math.nan, [], "min")


def test_optuna_learns_and_goes_on_from_rows():
    pytest.importorskip("optuna")
    space = parse_space({"x": {"low": -1.0, "high": 1.0}})

    def run(sampler, numbers):
        for number in numbers:
            parameters = sampler.ask(number)
            yield Outcome(number, parameters, "ended", (parameters["x"] - 0.3) ** 2)

    sampler, rows = make_sampler("optuna", space, seed=0, direction="min"), []
    for row in run(sampler, range(20)):
        sampler.tell(row)
        rows.append(row)
    again = make_sampler("optuna", space, seed=0, direction="min")
    for row in rows:
        again.tell(row)
    for row in run(again, range(20, 40)):
        again.tell(row)
        rows.append(row)
    late = [abs(row.parameters["x"] - 0.3) for row in rows[20:]]
    assert sum(late) / len(late) < 0.25  # by chance: 0.55

"""Which trials come next, and what is kept of those that have ended."""

import math
import random

import pytest

from tfscale import StudyError
from tfscale.study import TrialResult, fit, read_results
from tfscale.study.goal import next_evaluation
from tfscale.study.points import halton_points
from tfscale.study.result import read_result, write_csv, write_result
from tfscale.study.schedule import Parameter, Settings, least_steps, next_trials, parse_batches

RATE = Parameter("rate", 0.1, "rate")


def settings(**changed):
    given = {
        "batches": (16, 64, 256),
        "trials": 8,
        "seeds": 2,
        "parameters": (RATE,),
        "reference_batch": 16,
        "rule": "linear",
        "most_batch": 4096,
    }
    return Settings(**given | changed)


def run(trial, critical=100.0, best=0.1):
    """A training run whose best rate follows the batch."""
    off = math.log2(trial.parameters["rate"] / (best * trial.batch / 16))
    steps = 10 * (1 + critical / trial.batch) * (1 + off * off)
    return TrialResult(trial, steps, "reached")


def study(chosen, kill=0.0, begun=None, **world):
    """Runs all rounds; some of the trials are lost, as where a study is killed."""
    chance, results, rounds = random.Random(1), dict(begun or {}), 0
    while left := next_trials(chosen, results.values()):
        rounds += 1
        assert rounds < 60
        for trial in left:
            assert trial.name not in results
            if chance.random() >= kill:
                results[trial.name] = run(trial, **world)
    return results


def test_equal_trials_with_the_same_points_and_more_seeds():
    results = study(settings())
    by_batch = {batch: [each for each in results.values() if each.trial.batch == batch] for batch in (16, 64, 256)}
    assert {len(each) for each in by_batch.values()} == {8 + 4}
    first, last = (sorted(r.trial.parameters["rate"] for r in by_batch[b] if not r.trial.seed) for b in (16, 256))
    assert [16 * each for each in first] == pytest.approx(last)
    assert max(first) / min(first) == pytest.approx(2 ** (7 * 7 / 8))
    assert fit(results.values()).b_crit == pytest.approx(100, rel=0.1)


def test_killed_and_resumed_it_is_the_same():
    assert study(settings(), kill=0.7) == study(settings())


RATE_AND_DECAY = (RATE, Parameter("decay", 1e-4, "factor"))


@pytest.mark.parametrize("parameters", [(RATE,), RATE_AND_DECAY])
@pytest.mark.parametrize("octaves", [0, -4.5, 7.5])
def test_a_study_that_has_ended_goes_on_with_more(octaves, parameters):
    begun = study(settings(parameters=parameters), best=0.1 * 2**octaves)
    more = settings(trials=12, seeds=3, batches=(16, 64, 256, 1024), first_trials=8, parameters=parameters)
    results = study(more, begun=begun, best=0.1 * 2**octaves)
    assert {name: results[name] for name in begun} == begun
    by_batch = {batch: {} for batch in more.batches}
    for each in results.values():
        own = dict(each.trial.parameters)
        own["rate"] = round(own["rate"] * 16 / each.trial.batch, 9)
        # A number is of one point, at all batches and with all seeds, and no point has two.
        assert by_batch[each.trial.batch].setdefault(each.trial.point, own) == own
    assert by_batch[16] == by_batch[64] == by_batch[256] == by_batch[1024]
    assert len({tuple(each.items()) for each in by_batch[16].values()}) == len(by_batch[16])
    assert len(by_batch[16]) == 12 * len({each.trial.point for each in begun.values()}) // 8
    assert sum(each.trial.seed == 2 for each in results.values()) >= 4 * 6
    assert study(more, begun=begun, kill=0.7, best=0.1 * 2**octaves) == results


def test_trials_that_a_smaller_budget_has_ended_are_run_again():
    def ended(trial, budget):
        result, most = run(trial), budget // trial.batch
        if result.steps <= most:
            return result
        last = 1
        while next_evaluation(last) <= most:
            last = next_evaluation(last)
        return TrialResult(trial, math.inf, "budget", evaluations=((last, 1.0),))

    def go_on(results, budget):
        ran = []
        while left := next_trials(settings(), results.values(), budget_examples=budget):
            ran += [each.name for each in left]
            results = results | {each.name: ended(each, budget) for each in left}
        return results, ran

    first, _ = go_on({}, 4000)
    cut = [name for name, each in first.items() if each.reason == "budget"]
    assert 0 < len(cut) < len(first)
    assert go_on(first, 4000) == (first, [])
    second, ran = go_on(first, 60_000)
    assert set(cut) <= set(ran)
    assert {name: each for name, each in second.items() if name in first and name not in cut} == {
        name: each for name, each in first.items() if name not in cut
    }
    assert len(ran) == len(set(ran))


def test_large_batches_come_first():
    assert [each.batch for each in next_trials(settings(), [])] == [256] * 8 + [64] * 8 + [16] * 8


@pytest.mark.parametrize("best", [0.1 / 2**4.5, 0.1 * 2**4.5])
def test_a_range_whose_edge_is_the_best_is_widened(best):
    results = study(settings(), best=best)
    rates = {each.trial.parameters["rate"] for each in results.values() if each.trial.batch == 16}
    assert min(rates) < best < max(rates)
    assert len({point.trial.point for point in results.values()}) == 16


@pytest.mark.parametrize("octaves", [-7.5, 7.5])
def test_a_range_that_is_widened_twice_is_tried_further_out(octaves):
    results = study(settings(), best=0.1 * 2**octaves)
    rates = sorted(
        each.trial.parameters["rate"] for each in results.values() if (each.trial.batch, each.trial.seed) == (16, 0)
    )
    assert len(set(rates)) == len(rates) == 24
    assert rates[0] < 0.1 * 2**octaves < rates[-1]


@pytest.mark.parametrize(("critical", "batches"), [(900, {512, 1024, 2048}), (200, {512}), (5, {8, 4})])
def test_extended_until_it_contains_the_critical_batch(critical, batches):
    results = study(settings(), critical=critical)
    assert {each.trial.batch for each in results.values()} == {16, 64, 256} | batches
    assert fit(results.values()).is_bracketed


def test_not_towards_batches_that_do_not_reach_the_target():
    def limited(trial):
        result = run(trial, critical=900.0)
        return result if trial.batch < 256 else TrialResult(trial, math.inf, "budget")

    chosen, results = settings(batches=(16, 32, 64, 256)), {}
    while left := next_trials(chosen, results.values()):
        results |= {each.name: limited(each) for each in left}
    assert {each.trial.batch for each in results.values()} == {16, 32, 64, 256}
    assert not fit(results.values()).is_bracketed


def test_not_beyond_the_examples():
    results = study(settings(most_batch=300), critical=2000)
    assert {each.trial.batch for each in results.values()} == {16, 64, 256, 300}
    assert not fit(results.values()).is_bracketed


def test_a_target_that_is_never_reached_ends():
    assert (
        next_trials(settings(), [TrialResult(each, math.inf, "budget") for each in next_trials(settings(), [])]) == []
    )


def test_several_parameters():
    chosen = settings(parameters=(RATE, Parameter("momentum", 0.9, "one minus"), Parameter("decay", 1e-4, "factor")))
    for trial in next_trials(chosen, []):
        assert 0 <= trial.parameters["momentum"] <= 0.99
        assert 1e-5 <= trial.parameters["decay"] <= 1e-3


def test_points_are_spread_evenly():
    points = halton_points(64, 3)
    for place, cells in ((0, 16), (1, 9), (2, 5)):
        counts = [sum(int(cells * point[place]) == cell for point in points) for cell in range(cells)]
        assert min(counts) >= 64 // cells - 2
    assert len({tuple(point) for point in points}) == 64


@pytest.mark.parametrize("text", ["", "16..", "..8", "16-64", "0..8", "a,b", "16,-4"])
def test_batches_that_are_none(text):
    with pytest.raises(StudyError, match=r"Batches must be as 16\.\.1024"):
        parse_batches(text)


@pytest.mark.parametrize("changed", [{"batches": (16, 64)}, {"batches": (16, 64, 9999)}, {"parameters": ()}])
def test_settings_that_are_none(changed):
    with pytest.raises(StudyError, match="A study "):
        settings(**changed)


def test_files(tmp_path):
    rows = [run(each) for each in next_trials(settings(parameters=RATE_AND_DECAY), [])]
    rows[3] = TrialResult(rows[3].trial, math.inf, "not finite, at once", 1.5, "cpu", "abc", ((1, 2.5), (2, 1.5)))
    for row in rows:
        write_result(tmp_path, row)
    read = {path.stem: read_result(path) for path in tmp_path.glob("*.json")}
    assert read == {row.trial.name: row for row in rows}
    write_csv(tmp_path / "study.csv", rows)
    assert (tmp_path / "study.csv").read_text().startswith("batch,point,seed,parameter:rate,parameter:decay,steps,")
    table = {row.trial.name: row for row in read_results(tmp_path)}
    assert {name: (row.steps, row.trial, row.reason) for name, row in table.items()} == {
        row.trial.name: (row.steps, row.trial, row.reason) for row in rows
    }
    assert least_steps(rows, 64) == min(row.steps for row in rows if row.trial.batch == 64)
    assert least_steps(rows, 1) == math.inf


def test_what_is_no_model(tmp_path):
    write_result(tmp_path, run(next_trials(settings(), [])[0]))
    [path] = tmp_path.glob("*.json")
    whole = path.read_text()
    for wrong in ("3", '["a"]', '{"weights": [1]}'):
        path.write_text(whole.replace('"model": {}', f'"model": {wrong}'))
        with pytest.raises(StudyError, match="A result must be a file that a study has written"):
            read_result(path)


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"trial": {"batch": 1}}'])
def test_files_that_are_none(tmp_path, content):
    path = tmp_path / "b.json"
    path.write_text(content)
    with pytest.raises(StudyError, match="A result must be a file that a study has written"):
        read_result(path)
    with pytest.raises(StudyError, match="A study must be a table"):
        read_results(tmp_path)

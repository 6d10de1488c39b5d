"""The numbers of a plan: steps, times, links, bands, advice."""

import math
import re
from random import Random

import pytest

from tests.repository import ROOT
from tfscale import MeasureError, StudyError
from tfscale.measure import StepMoments, TraceRow
from tfscale.plan import CriticalBatch, Link, StepTime, advise, from_noise, from_study, predict
from tfscale.plan.link import PROCESSOR_S_PER_BYTE, network_table, parse_link, parse_seconds
from tfscale.plan.measured_link import link_of_run
from tfscale.plan.rows import Run, steps_at
from tfscale.study import Trial, TrialResult, fit


def known(batch):
    return CriticalBatch(batch, batch, batch, "study", "")


def moments(noise, batch=32.0, signal=2.0):
    return [StepMoments(noise * signal * (1 + 0.1 * (-1) ** i), signal, batch, 4) for i in range(200)]


def rows_of(steps):
    return [TraceRow(place + 1, 32.0 * place, each, None, 0.1 * place) for place, each in enumerate(steps)]


def test_steps_that_count_less_where_there_is_more_noise():
    # Two halves with x = 32 and x = 320 at b = 32: w is 1 / 2 and 1 / 11, S(B) the sum of both halves' laws.
    found = from_noise(rows_of([*moments(32.0), *moments(320.0)]))
    weights = [1 / 2, 1 / 11]
    expected = (weights[0] * 32 + weights[1] * 320) / sum(weights)
    assert found.value == pytest.approx(expected, rel=0.01)
    assert found.value < (32 + 320) / 2 / 2
    run = Run(steps=400, batch=32, size_bytes=0)
    by_halves = sum(200 * w * (1 + x / 128) for w, x in zip(weights, (32, 320), strict=True))
    assert steps_at(128, run, found.value) == pytest.approx(by_halves, rel=0.01)


def test_noise_alone_gives_a_band_that_is_never_narrower_than_sixteen_times():
    found = from_noise(rows_of(moments(100.0)))
    assert found.low <= found.value / 4
    assert found.high >= 4 * found.value
    assert "no number" in found.note


def test_where_the_gradient_is_not_told_from_noise_there_is_no_upper_end():
    chance = Random(0)
    steps = [StepMoments(100.0, chance.gauss(0.1, 1), 32.0, 2) for _ in range(100)]
    found = from_noise(rows_of(steps))
    assert math.isinf(found.high)
    with pytest.raises(MeasureError, match="told from its noise"):
        from_noise(rows_of([StepMoments(100.0, -1.0 - i % 2, 32.0, 2) for i in range(100)]))


def study(critical, batches):
    rows = [TrialResult(Trial(batch, 0, 0, {"rate": 0.1}), 10 * (1 + critical / batch), "reached") for batch in batches]
    return fit(rows)


def test_a_study_foretells_examples_beyond_its_batches():
    found = from_study(study(100, (16, 64, 256)), "loss <= 0.1")
    run = Run(steps=10 * (1 + 100 / 16), batch=16, size_bytes=0)
    assert steps_at(400, run, found.value) == pytest.approx(12.5, rel=1e-3)
    assert found.note == "a study to loss <= 0.1"


def test_a_study_that_does_not_contain_its_critical_batch_is_refused():
    with pytest.raises(StudyError, match=r"Received: a critical batch of 1e\+03, from batches 16 to 256"):
        from_study(study(1000, (16, 64, 256)), "")


@pytest.mark.parametrize("left_out", [8, 16, 32, 64, 128])
def test_the_time_of_a_batch_that_was_left_out(left_out):
    truth = {batch: 0.01 + 0.0005 * batch for batch in (8, 16, 32, 64, 128)}
    found = StepTime.fit({batch: seconds for batch, seconds in truth.items() if batch != left_out})
    assert found.seconds(left_out) == pytest.approx((truth[left_out],) * 2)
    assert found.seconds(24, micro_batch=16) == pytest.approx((0.018 + 0.014,) * 2)


def test_fewer_than_four_times_give_a_band_that_contains_the_truth():
    truth = {batch: 0.01 + 0.0005 * batch for batch in (1, 8, 16, 32, 64, 128, 1024)}
    found = StepTime.fit({16: truth[16], 64: truth[64]})
    for batch, seconds in truth.items():
        low, high = found.seconds(batch)
        assert low <= seconds <= high
        assert (low == high) == (batch in (16, 64))


def test_times_on_no_line_are_a_band():
    low, high = StepTime.fit({8: 0.03, 16: 0.01, 32: 0.03, 64: 0.01}).seconds(16)
    assert high > 2 * low


@pytest.mark.parametrize("measured", [{}, {8: 0.0}, {8: math.nan}, {0: 1.0}, {8: -1.0, 16: 1.0}])
def test_times_that_are_none(measured):
    with pytest.raises(MeasureError):
        StepTime.fit(measured)


def test_waiting_agrees_with_what_was_measured_over_three_links():
    """Every exact and bf16 cell of `make bench-links` in the notes, with the links as they were measured there."""
    text = (ROOT / "BUILD_NOTES.md").read_text()
    links = {
        (model, name): (float(latency) / 1e3, float(rate) * 1e6)
        for model, name, latency, rate in re.findall(
            r"^(\w+), (\w+): Link: latency ([\d.]+) ms, ([\d.]+) MB/s", text, re.MULTILINE
        )
    }
    cells = re.findall(
        r"^(mlp|convnet) +(none|1gbit|100mbit) +(no reduction|(?:float32|bf16), (?:one pack|packs)) +"
        r"(?:exact|rounding)? *([\d.]+) \[.*?\] +([\d.]+)",
        text,
        re.MULTILINE,
    )
    found = {(model, link, option): (float(ms), float(mb)) for model, link, option, ms, mb in cells}
    ratios = []
    for (model, link, option), (ms, _) in found.items():
        if option == "no reduction":
            continue
        latency_s, rate = links[model, link]
        size = 1e6 * found[model, "none", option][1]
        computing_s = found[model, link, "no reduction"][0] / 1e3
        ring = Link(link, rate, latency_s, PROCESSOR_S_PER_BYTE)
        total_s = computing_s + ring.exposed_s(2, size, computing_s, option.partition(", ")[2])
        ratios.append(1e3 * total_s / ms)
    assert len(ratios) == 24
    assert all(0.7 < ratio < 1.3 for ratio in ratios), ratios
    assert sum(0.85 < ratio < 1.15 for ratio in ratios) >= 0.8 * len(ratios), sorted(ratios)


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [("25gbit", 25e9 / 8), ("100 Mbit/s", 12.5e6), ("110MB/s", 110e6), ("1Gb/s", 125e6), ("0.5gbps", 62.5e6)],
)
def test_links(text, bytes_per_s):
    assert parse_link(text).bytes_per_s == pytest.approx(bytes_per_s)


@pytest.mark.parametrize("text", ["", "fast", "0gbit", "-1gbit", "1e9gbit", "25", "9" * 500 + "gbit", "gbit", "nan"])
def test_links_that_are_none(text):
    with pytest.raises(MeasureError, match="A link must be a rate"):
        parse_link(text)


LINK_LINE = '{"kind": "start", "link": {"bytes_per_s": 1.5e8, "latency_s": 0.0005, "processor_s_per_byte": 2e-9}}'


def test_the_link_that_a_run_has_measured_last(tmp_path):
    lines = (LINK_LINE.replace("1.5e8", "9"), LINK_LINE, '{"kind": "end"}', '{"kind": "start", "li')
    (tmp_path / "run.jsonl").write_text("\n".join(lines))
    found = link_of_run(tmp_path)
    assert (found.bytes_per_s, found.latency_s, found.processor_s_per_byte) == (1.5e8, 0.0005, 2e-9)
    assert found.name == f"of {tmp_path}, 150 MB/s"


@pytest.mark.parametrize("line", ["", '{"kind": "start"}', "[]", LINK_LINE.replace("1.5e8", "-1"), '{"link": 3}', None])
def test_a_run_without_a_link(tmp_path, line):
    if line is not None:
        (tmp_path / "run.jsonl").write_text(line)
    with pytest.raises(MeasureError, match="must be that of a run in which one was measured"):
        link_of_run(tmp_path)


@pytest.mark.parametrize("text", ["", "50", "us", "-1us", "1e3us", "5 minutes"])
def test_times_that_are_no_times(text):
    with pytest.raises(MeasureError, match="A time must be"):
        parse_seconds(text)


def test_a_faster_link_never_waits_longer_and_half_the_bytes_never_do():
    names = ("1gbit", "10gbit", "25gbit", "100gbit", "nvlink")
    table = network_table(
        {name: parse_link(name) for name in names}, num_replicas=8, size_bytes=1e8, computing_s=0.1, pass_s=0.1
    )
    waits = [row["waits"] for row in table]
    assert waits == sorted(waits, reverse=True)
    for row in table:
        assert row["half_the_bytes"] <= row["waits"] <= row["one_pack"]
        assert row["double_buffering"] <= row["waits"]
    # 1e8 bytes, 7/4 of them over 125e6 bytes a second are 1.4 s and 7 latencies; 2/3 of 0.1 s can be hidden.
    hidden = 1.4 + 7 * 50e-6 - 0.2 / 3
    assert waits[0] == pytest.approx(hidden / (0.1 + hidden))


RUN = Run(steps=1000, batch=32, size_bytes=4e6)
TIME = StepTime.fit({8: 0.014, 16: 0.018, 32: 0.026, 64: 0.042})


def plan(critical, link=None, numbers=(1, 2, 4, 8, 16, 32)):
    link = link or parse_link("100gbit")
    return predict(RUN, critical, TIME, link, num_replicas=numbers, per_replica_batches=[32], price_per_hour=3.6)


def test_times_costs_and_efficiency_by_hand():
    [row] = [
        row for row in plan(known(128), Link("x", 1e9, 0.001)) if (row.num_replicas, row.per_replica_batch) == (4, 32)
    ]
    steps = 1000 * (1 + 128 / 128) / (1 + 128 / 32)
    # 6 MB and 3 latencies of which 2/3 of 26 ms can hide all.
    seconds = steps * 0.026
    assert row.steps.value == pytest.approx(steps)
    assert row.examples.value == pytest.approx(128 * steps)
    assert row.waiting == (0.0, 0.0)
    assert row.total_s.value == pytest.approx(seconds)
    assert row.cost.value == pytest.approx(4 * seconds * 0.001)
    assert row.efficiency.value == pytest.approx(1000 * 0.026 / seconds / 4)


@pytest.mark.parametrize(("critical", "number"), [(1e6, 32), (400, 4), (60, 2), (8, 1)])
def test_advice_wastes_no_more_than_a_quarter(critical, number):
    rows = plan(known(critical))
    advice = advise(rows, RUN, known(critical))
    assert advice.row.num_replicas >= number
    examples = advice.row.examples.value
    assert examples <= 1.25 * 32 * 1000 * 1.0001
    if advice.row.num_replicas < 32:
        assert ("would be" in advice.sentence) or ("times the examples" in advice.sentence)


def test_advice_goes_by_the_lower_end_of_the_band():
    band = CriticalBatch(50, 800, 12800, "noise", "")
    assert advise(plan(band), RUN, band).row == advise(plan(band), RUN, known(50)).row
    assert advise(plan(band), RUN, band).row.global_batch < advise(plan(known(800)), RUN, known(800)).row.global_batch


def _wide(critical, numbers, batches, run=None):
    run = run or Run(steps=500, batch=512, size_bytes=4e6)
    time = StepTime.fit({8: 0.014, 16: 0.018, 32: 0.026, 64: 0.042})
    rows = predict(run, critical, time, parse_link("100gbit"), num_replicas=numbers, per_replica_batches=batches)
    return advise(rows, run, critical), rows


def test_advice_compares_with_one_replica_and_not_with_the_batch_of_the_trace():
    # A trace of 4 replicas with 128 each, and noise of 1200.
    band = CriticalBatch(300, 1200, 4800, "noise", "")
    advice, rows = _wide(band, (1, 2, 4, 8, 16), (128,))
    assert advice.row.global_batch == 128
    # (1 + 300 / 256) 256 over (1 + 300 / 128) 128.
    assert "2 would take up to 1.30 times the examples of 1 replica with 128" in advice.sentence
    assert rows[0].num_replicas == 1
    # Where one replica is not asked for, with the smallest batch.
    advice, _ = _wide(known(300), (2, 4, 8), (32, 64))
    assert advice.row.global_batch == 128
    assert "at most 1.18 times the examples of 2 replicas with 32" in advice.sentence


@pytest.mark.parametrize("numbers", [(1, 2, 4, 8, 16), (4, 8, 16)])
@pytest.mark.parametrize("batch", [16, 128, 1024])
@pytest.mark.parametrize("low", [5, 100, 300, 2000])
def test_from_noise_alone_no_batch_is_advised_above_the_lower_end(numbers, batch, low):
    band = CriticalBatch(low, 4 * low, 16 * low, "noise", "")
    advice, rows = _wide(band, numbers, (batch,))
    smallest = min(row.global_batch for row in rows if row.num_replicas == numbers[0])
    assert advice.row.global_batch <= max(low, smallest)


def test_what_is_above_the_lower_end_is_said():
    # 192 takes 1.23 times the examples of 128.
    run = Run(steps=500, batch=511, size_bytes=0)
    advice, _ = _wide(CriticalBatch(150, 600, 2400, "noise", ""), (2, 3), (64,), run)
    assert advice.row.global_batch == 128
    assert "3 would take a batch of 192 or more, above the lower end of the band, 150" in advice.sentence
    advice, _ = _wide(CriticalBatch(150, 600, 2400, "study", ""), (2, 3), (64,), run)
    assert "above the lower end" not in advice.sentence


def test_one_replica_at_the_batch_of_the_run_has_an_efficiency_of_one():
    # Fewer than four times: the time of 128 is not known, and that of 256 neither.
    run = Run(steps=300, batch=128, size_bytes=4e6)
    band = CriticalBatch(20, 80, 320, "noise", "")
    noisy = StepTime.fit({16: 0.03, 32: 0.02, 64: 0.06, 512: 0.09})
    for time in (StepTime.fit({64: 0.04}), noisy):
        rows = predict(run, band, time, None, num_replicas=[1], per_replica_batches=[64, 256])
        own, larger = (next(row for row in rows if row.global_batch == batch) for batch in (128, 256))
        assert own.step_s[0] < own.step_s[1]
        assert tuple(own.efficiency) == pytest.approx((1, 1, 1))
        # The same end of the time of a step in both: (1 + B/128) t_128 over (1 + B/256) t_256.
        ends = [
            (1 + b / 128) / (1 + b / 256) * time.seconds(128)[end] / time.seconds(256)[end]
            for b in (20, 320)
            for end in (0, 1)
        ]
        assert (larger.efficiency.low, larger.efficiency.high) == pytest.approx((min(ends), max(ends)))


def test_a_slow_network_ends_the_advice():
    advice = advise(plan(known(1e6), Link("1mbit", 125e3, 0.01)), RUN, known(1e6))
    assert advice.row.num_replicas == 1
    assert "waits up to" in advice.sentence


def test_bands_contain_what_each_critical_batch_within_gives():
    band = CriticalBatch(20, 80, 320, "noise", "")
    for critical in (20, 33, 80, 150, 320):
        for wide, exact in zip(plan(band), plan(known(critical)), strict=True):
            for name in ("steps", "examples", "total_s", "cost", "efficiency"):
                low, _, high = getattr(wide, name)
                assert low * (1 - 1e-9) <= getattr(exact, name).value <= high * (1 + 1e-9), name

"""Every case of which the noise scale must be equal, refused, or called approximate."""

import pytest

from tests.processes import run_workers
from tests.training.callbacks.test_noise_scale import CASES, assert_measured, assert_same_run, result_of
from tests.training.together import run_together

CLIPPED = ["clipped by value", "clipped by norm", "clipped by global norm"]
BY_TAPE = [*CLIPPED, "loss scale", "own step, loss scale", "L2", "embedding", "eager", "XLA"]
BY_TAPE += ["several steps per call"]
OTHERS = ["bf16", "AdaScale", "Adam, checked", "dropout", "synchronized BN", "local BN"]


@pytest.fixture(scope="module")
def results():
    forms = [*BY_TAPE, *OTHERS, "double buffering", "accumulation", "micro-steps"]
    calls = [
        *(("measured", (form, 3)) for form in forms),
        *(("gradients_of", (_plain_form(form), 3)) for form in [*BY_TAPE, "plain"]),
        ("accumulated", (3,)),
    ]
    return run_together([(f"{CASES}:{name}", args) for name, args in calls], timeout_s=900)


@pytest.fixture(scope="module")
def others():
    names = ("weighted", "masked", "half_precision", "compressed")
    calls = [*((name, (3,)) for name in names), ("same_rows", ("dropout", 3)), ("same_rows", ("plain", 3))]
    return run_together([(f"{CASES}:{name}", args) for name, args in calls])


def _plain_form(form):
    return {
        "own step, loss scale": "plain",
        "loss scale": "plain",
        "eager": "plain",
        "XLA": "plain",
        "several steps per call": "plain",
    }.get(form, form)


@pytest.mark.parametrize("form", [*BY_TAPE, *OTHERS, "double buffering", "accumulation", "micro-steps"])
def test_the_run_stays_the_same_to_the_bit(results, form):
    assert_same_run(result_of(results, "measured", form, 3))


@pytest.mark.parametrize("form", BY_TAPE)
def test_equal_to_the_tape(results, form):
    rows = result_of(results, "measured", form, 3)["rows"]
    assert_measured(rows, result_of(results, "gradients_of", _plain_form(form), 3))


@pytest.mark.parametrize("form", CLIPPED)
def test_clipped_steps_are_counted(results, form):
    assert result_of(results, "measured", form, 3)["clipped_share"] > 0.5
    assert result_of(results, "measured", "L2", 3)["clipped_share"] == 0


def test_measured_before_clipping(results):
    plain = result_of(results, "gradients_of", "plain", 3)[:1]
    for form in CLIPPED:
        assert_measured(result_of(results, "measured", form, 3)["rows"][:1], plain, rel=1e-5)


def test_a_penalty_on_weights_leaves_the_variance_alone(results):
    [plain], [penalised] = (result_of(results, "measured", form, 3)["rows"][:1] for form in ("eager", "L2"))
    assert penalised.moments.variance == pytest.approx(plain.moments.variance, rel=1e-5)
    assert penalised.moments.squared_mean > 1.005 * plain.moments.squared_mean


def test_gradients_of_one_step_are_kept_together_when_they_wait():
    calls = [("measured", ("double buffering", 2)), ("waiting", (2,))]
    results = run_together([(f"{CASES}:{name}", args) for name, args in calls])
    assert_measured(result_of(results, "measured", "double buffering", 2)["rows"], result_of(results, "waiting", 2))


def test_accumulated_steps_are_shards(results):
    rows = result_of(results, "measured", "accumulation", 3)["rows"]
    # Of five updates in two epochs of 24, 24, 24, 24 and 10 rows, two are made of steps of different sizes.
    assert [(row.moments.examples, row.moments.shards) for row in rows] == [(48, 6)] * 3
    # The first two steps are made with the first weights.
    assert rows[0].moments.variance == pytest.approx(result_of(results, "accumulated", 3), rel=1e-5)


def test_weights_of_shards_are_those_of_the_loss(others):
    for name in ("weighted", "masked"):
        found = result_of(others, name, 3)
        assert_measured(found["rows"], found["expected"])
        assert found["approximate"] == []


def test_half_precision(others):
    found = result_of(others, "half_precision", 3)
    assert found["float16"]["found"].value == pytest.approx(found["float32"]["found"].value, rel=0.02)
    # Steps that overflow are left out.
    assert 0 < len(found["large"]["rows"]) < len(found["float16"]["rows"])


def test_compressed(others):
    found = result_of(others, "compressed", 3)
    assert found["bf16"]["found"].value == pytest.approx(found["plain"]["found"].value, rel=0.01)
    assert "NoiseScale" not in found["kinds"]
    assert "a compression that leaves something out has another sum.\nReceived: compression PowerSGD" in found["error"]


def test_masks_of_dropout_are_noise(others):
    for row in result_of(others, "same_rows", "plain", 3):
        assert abs(row.moments.variance) < 1e-4 * max(row.moments.squared_mean, 1e-3)
    dropped = result_of(others, "same_rows", "dropout", 3)
    assert all(row.moments.variance > 0.05 * row.moments.squared_mean for row in dropped)


@pytest.mark.parametrize("form", ["local BN", "synchronized BN"])
def test_batch_normalization_against_whole_batches(form):
    [found] = run_together([(f"{CASES}:of_batch_norm", (form, 2))]).values()
    assert isinstance(found, dict), found
    assert found["found"] == pytest.approx(found["expected"], rel=0.1)
    assert [("BatchNormalization" in each) for each in found["approximate"]] == [True] * (form != "local BN")


def test_however_four_shards_are_divided(tmp_path):
    found = []
    for way in [(1, 6), (2, 6), (4, None)]:
        calls = [(f"{CASES}:trace", way), (f"{CASES}:trace", (*way, "", True))]
        found.append(list(run_together(calls).values()))
    workers = run_workers(f"{CASES}:trace", 2, args=(2, 6, str(tmp_path)))
    [(first, first_clipped), *others] = found
    # Measured before clipping, at the same weights.
    assert first_clipped[0].moments.variance == pytest.approx(first[0].moments.variance, rel=1e-5)
    assert first_clipped[0].moments.squared_mean == pytest.approx(first[0].moments.squared_mean, rel=1e-5)
    for _, clipped in others:
        assert_same_trace(clipped, first_clipped)
    for rows in (*(rows for rows, _ in others), *workers):
        assert_same_trace(rows, first)
    # The chief writes.
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["0.csv", "0.json"]


def assert_same_trace(rows, expected):
    assert [row.moments.shards for row in rows] == [4] * 8
    for row, right in zip(rows, expected, strict=True):
        assert row.moments.variance == pytest.approx(right.moments.variance, rel=1e-5)
        # It is a difference: as exact as what it is the difference of.
        noise = right.moments.variance / right.moments.examples
        assert row.moments.squared_mean == pytest.approx(right.moments.squared_mean, rel=1e-5, abs=1e-5 * noise)

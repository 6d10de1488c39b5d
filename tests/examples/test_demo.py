import dataclasses
import time

import matplotlib.image
import numpy as np
import pytest

from examples import demo
from tests.examples.cases_examples import EXAMPLES
from tests.processes import run_case

# matplotlib's first three colours, in the order in which the ways are drawn.
COLOURS = ((0x1F, 0x77, 0xB4), (0xFF, 0x7F, 0x0E), (0x2C, 0xA0, 0x2C))


def test_smoke(tmp_path):
    printed = run_case(
        "tests.examples.cases_examples:run_script",
        args=("demo.py", "--smoke", "--output", str(tmp_path)),
        timeout_s=240,
    )
    names = tuple(way.name for way in demo.WAYS)
    rows = [line for line in printed.splitlines() if line.startswith(names) and " ..." not in line]
    assert len({len(row) for row in rows}) == 1, "the columns are not aligned"
    # Columns are two spaces apart, or more.
    plain, replicas, workers = [[cell.strip() for cell in row.split("  ") if cell.strip()] for row in rows]
    loss, accuracy, difference, _ = plain[1:]
    assert 0 < float(loss) < 2
    assert float(accuracy) > 0.7
    assert difference == "-"
    for row in (replicas, workers):
        assert float(row[1]) == pytest.approx(float(loss), abs=2e-4)
        assert float(row[2]) == pytest.approx(float(accuracy), abs=0.004)
        # A difference of exactly zero would mean that a run was compared with itself.
        assert 0 < float(row[3]) < 1e-4
    assert all(float(row[4].replace(",", "")) > 10 for row in (plain, replicas, workers))
    _check_picture(tmp_path / "learning_curves.png")


def _check_picture(path):
    picture = matplotlib.image.imread(path)[..., :3]
    height, width, _ = picture.shape
    assert height > 400
    assert width > 800
    # Left and right panel: every way's line can be seen in both.
    for panel in (picture[:, : width // 2], picture[:, width // 2 :]):
        for colour in COLOURS:
            near = np.all(np.abs(panel * 255 - colour) < 8, axis=-1)
            assert near.sum() > 100, colour


SLEEP = "import time; time.sleep(60)"
FAIL_ON_RANK_1 = f"""
import json, os
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
    raise SystemExit("on purpose")
{SLEEP}
"""


@pytest.mark.parametrize(
    ("script", "deadline_s", "message"),
    [
        (FAIL_ON_RANK_1, 30, "(?s)process 1 of 2 ended with exit status 1.*on purpose"),
        (SLEEP, 0.5, "process 0 of 2 did not finish within 0.5 s"),
    ],
    ids=["failure", "deadline"],
)
def test_failed_way_says_why_and_leaves_no_process(script, deadline_s, message, monkeypatch, tmp_path):
    path = tmp_path / "script.py"
    path.write_text(script)
    monkeypatch.setattr(demo, "SCRIPT", path)
    monkeypatch.setattr(demo, "DEADLINE_S", deadline_s)
    start_s = time.monotonic()
    with pytest.raises(demo.WayError, match=message):
        demo.run(demo.WAYS[2], epochs=1)
    assert time.monotonic() - start_s < 20


@pytest.mark.parametrize(
    ("difference", "status"), [(0.0, 0), (0.9e-4, 0), (1.2e-4, 1), (float("nan"), 1), (float("inf"), 1)]
)
@pytest.mark.parametrize("rank", [1, 2])
def test_exit_status_says_whether_the_weights_are_equal(rank, difference, status, monkeypatch, tmp_path):
    history = dict.fromkeys(("loss", "val_loss", "val_accuracy", "examples_per_s"), np.ones(2))
    # Relative to the largest entry of its array, 2; the second array is equal in any case.
    equal = demo.Result(history, {"a": np.array([1.0, 2.0]), "b": np.ones(3)})
    other = dataclasses.replace(equal, weights={**equal.weights, "a": np.array([1.0 + 2 * difference, 2.0])})
    results = dict(zip(demo.WAYS, [equal] * 3, strict=True)) | {demo.WAYS[rank]: other}
    monkeypatch.setattr(demo, "run", lambda way, epochs: results[way])
    assert demo.main(["--output", str(tmp_path)]) == status


def test_failed_way_ends_the_demo(monkeypatch, tmp_path, capsys):
    def fail(way, epochs):
        raise demo.WayError("on purpose")

    monkeypatch.setattr(demo, "run", fail)
    assert demo.main(["--output", str(tmp_path)]) == 1
    assert "on purpose" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_demo_and_script_agree_on_the_location():
    assert demo.SCRIPT == EXAMPLES / "digits_training.py"

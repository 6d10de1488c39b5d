"""A trace is read as it was written, and what is none is refused."""

import pytest

from tfscale import MeasureError
from tfscale.measure import StepMoments, TraceRow, format_trace, read_trace
from tfscale.measure.sampling import EveryChooser

HEADER = "step,examples,v,m,K,n,loss,seconds"
ROWS = [
    TraceRow(3, 96.0, StepMoments(1 / 3, -0.25, 32.0, 4), 0.1, 1.5, {"a": (0.25, -0.5), "b/c": (1e-30, 1e30)}),
    TraceRow(7, 224.0, StepMoments(2.0, 0.0, 10.0, 2), None, 2.25, {"a": (0.0, 0.0), "b/c": (1.0, 2.0)}),
]


@pytest.mark.parametrize("layers", [[], ["a", "b/c"]])
def test_round_trip(tmp_path, layers):
    path = tmp_path / "noise.csv"
    rows = [TraceRow(*(row.__dict__ | {"layers": row.layers if layers else {}}).values()) for row in ROWS]
    path.write_text(format_trace(rows[:1], layers=layers) + format_trace(rows[1:], layers=layers, with_header=False))
    assert read_trace(path) == rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "begins with ''"),
        ("epoch,loss\n1,2\n", "begins with 'epoch,loss'"),
        (f"{HEADER}\n1,32,1.0,1.0,4,32,,0.5\n1,64,1.0,1.0,4,32,,0.7\n", "step 1 after 1 in line 3"),
        (f"{HEADER}\n1,32,nan,1.0,4,32,,0.5\n", "a number is missing"),
        (f"{HEADER}\n1,32,1.0,1.0,1,32,,0.5\n", "out of its range"),
        (f"{HEADER}\n1,32,1.0,1.0,4\n", "in line 2 of"),
        (f"{HEADER}\n1,32,1.0,1.0,4,32,,0.5,9\n", "in line 2 of"),
        (f"{HEADER}\n1,32,one,1.0,4,32,,0.5\n", "could not convert"),
    ],
)
def test_what_is_none_is_refused(tmp_path, text, message):
    path = tmp_path / "noise.csv"
    path.write_text(text)
    with pytest.raises(MeasureError, match=message.replace("'", ".")):
        read_trace(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(MeasureError, match="A trace must be a file that can be read"):
        read_trace(tmp_path / "noise.csv")


@pytest.mark.parametrize(
    ("cost", "every"), [(0.0, 1), (-0.1, 1), (0.005, 1), (0.01, 2), (0.011, 3), (0.25, 50), (1.0, 200), (50.0, 1000)]
)
def test_one_step_of_so_many_costs_half_a_hundredth(cost, every):
    chooser, calls = EveryChooser(), 0
    while chooser.every is None:
        # The first calls make the graph.
        chooser.add(100.0 if calls < 2 else 0.1 * (1 + cost * chooser.measures_next))
        calls += 1
    assert chooser.every == every
    assert calls == 26


@pytest.mark.parametrize(
    ("step_s", "every"),
    # Of 0.9 %, 40 us of 20 ms are 0.2, and half a hundredth is the most; of 8 ms 0.5; of 5 ms 0.8; of 1 ms 4.
    [(0.02, 200), (0.008, 250), (0.005, 1000), (0.001, 1000)],
)
def test_what_is_in_every_step_is_taken_from_what_may_be_measured(step_s, every):
    chooser = EveryChooser(fixed_s=40e-6)
    while chooser.every is None:
        chooser.add(step_s * (2.0 if chooser.measures_next else 1.0))
    assert chooser.every == every

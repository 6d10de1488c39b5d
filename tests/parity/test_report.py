import json
import math

import pytest

from tfscale.parity.report import ParityReport, ParityRow

EQUAL = ParityRow("tfscale, 2 replicas", "weights", 0.0, "kernel", "equal")
DIFFERS = ParityRow("tfscale, 2 replicas", "predict", math.inf, "output 0", "differs")
ROUNDING = ParityRow("tfscale, 2 replicas", "weights", 1e-3, "kernel", "rounding")
BESIDE = ParityRow("keras, 2 replicas", "run", math.inf, "ValueError: no", "crashed", promised=False)


@pytest.mark.parametrize(
    ("rows", "equal"),
    [
        ((EQUAL,), True),
        ((EQUAL, DIFFERS), False),
        # What float64 has decided.
        ((EQUAL, ROUNDING), True),
        ((ROUNDING, DIFFERS), False),
        # Plain Keras beside is shown, and promises nothing.
        ((EQUAL, BESIDE), True),
        ((DIFFERS, BESIDE), False),
    ],
)
def test_verdict(rows, equal):
    assert ParityReport("title", 1e-5, rows).equal is equal


def test_table():
    report = ParityReport("title", 1e-5, (EQUAL, DIFFERS, BESIDE), causes=("Cause.",), notes=("long " * 25 + "note.",))
    assert str(report).splitlines() == [
        "title",
        "run                  quantity  difference  verdict  largest in",
        "tfscale, 2 replicas  weights      0.0e+00  equal    kernel",
        "                     predict            -  differs  output 0",
        "keras, 2 replicas    run                -  crashed  ValueError: no",
        "Differs: a run through tfscale has a relative difference above 1e-05 from plain Keras on one device.",
        "Cause.",
        "Note: " + "long " * 18 + "long",
        "  " + "long " * 6 + "note.",
    ]


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ((EQUAL,), "Equal: no relative difference above 1e-05 from plain Keras on one device."),
        (
            (EQUAL, ROUNDING),
            "Equal in float64: each relative difference above 1e-05 from plain Keras on one device is rounding.",
        ),
        (
            (ROUNDING, DIFFERS),
            "Differs: a run through tfscale has a relative difference above 1e-05 from plain Keras on one device.",
        ),
    ],
)
def test_line_of_the_verdict(rows, line):
    assert ParityReport("title", 1e-5, rows).below() == [line]


def test_plain_values():
    report = json.loads(json.dumps(ParityReport("title", 1e-5, (EQUAL, DIFFERS)).to_dict(), allow_nan=False))
    assert report["equal"] is False
    assert [row["difference"] for row in report["rows"]] == [0.0, None]

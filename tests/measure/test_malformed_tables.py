"""Thousands of damaged tables: each is read, or refused by an error of ours, and at once."""

import math
import time
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfscale import MeasureError, StudyError
from tfscale.measure import StepMoments, TraceRow, format_trace, read_trace
from tfscale.study import read_results

LAYER = {"a": (0.25, -0.5)}
ROWS = [TraceRow(step, 32.0 * step, StepMoments(0.5, -0.25, 32.0, 4), 0.1, 1.5, LAYER) for step in (1, 3, 9)]
TRACE = format_trace(ROWS, layers=["a"])
STUDY = """batch,point,seed,parameter:rate,steps,reason,seconds,device,commit
16,0,0,0.1,70.5,reached,1.0,cpu,abc
16,1,0,9.9,inf,not finite,1.0,cpu,
"""
DAMAGE = ["", ",", '"', "\n", "\r", "-", "e", "9", "\0", "\x1c", "\u2028", "\u0663", ","]
ODD = [
    "",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "-1",
    "0",
    "1.5",
    "1_0",
    "0x1",
    "9" * 5000,
    "x" * 200_000,
    "\x1b[2J" * 99,
    '"',
]
MAX_CHARACTERS = 2000
MAX_S = 1.0


def damaged(random, good):
    """Some cells replaced, left out or added, some characters changed, or the file cut short."""
    rows = [line.split(",") for line in good.splitlines()]
    for _ in range(random.choice([0, 1, 1, 2])):
        row = random.choice(rows)
        at = random.randrange(len(row))
        row[at : at + random.choice([0, 1, 1, 2])] = random.choice([[random.choice(ODD)], [], ["1"] * 9])
        row.extend([] if row else [""])
    text = "\n".join(map(",".join, rows)) + "\n"
    for _ in range(random.choice([0, 0, 1, 3])):
        at = random.randrange(len(text))
        text = text[:at] + random.choice(DAMAGE) + text[at + 1 :]
    content = text.encode()
    if random.random() < 0.1:
        content = content[: random.randrange(len(content))] + random.choice([b"", b"\xff", b"\xef\xbb\xbf"])
    return content


def check_trace(path):
    steps = [0, *(row.step for row in read_trace(path))]
    assert all(type(step) is int for step in steps)
    assert steps == sorted(set(steps))
    # What was read can be written, and comes back.
    rows = read_trace(path)
    numbers = [number for row in rows for number in (row.seen, row.moments.variance, row.moments.shards, row.seconds)]
    assert all(map(math.isfinite, numbers))


def check_study(path):
    for each in read_results(path):
        assert each.steps > 0
        assert each.trial.batch >= 1
        assert math.isfinite(each.seconds)
        assert all(type(text) is str for text in (each.reason, each.device, each.commit))


TABLES = {"trace": (TRACE, check_trace, MeasureError), "study": (STUDY, check_study, StudyError)}


# Hypothesis draws where to start, as for environments.
@pytest.mark.parametrize("name", TABLES)
def test_any_table_is_read_or_refused(name, tmp_path_factory):
    good, check, kind = TABLES[name]
    path = tmp_path_factory.mktemp("tables") / "table.csv"
    ends = {"read": 0, "refused": 0}

    @settings(max_examples=15, deadline=None)
    @given(st.integers(0, 2**32))
    def check_many(seed):
        random = Random(seed)
        for _ in range(50):
            content = damaged(random, good)
            path.write_bytes(content)
            began_s = time.process_time()
            try:
                check(path)
                ends["read"] += 1
            except kind as error:
                ends["refused"] += 1
                said = str(error)
                assert "\nReceived: " in said
                assert len(said) <= MAX_CHARACTERS
                assert all(each.isprintable() or each == "\n" for each in said), content[:300]
            assert time.process_time() - began_s < MAX_S, content[:300]

    check_many()
    assert min(ends.values()) > 50, ends


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0",
        "a,b\n",
        STUDY.replace("cpu,abc", "cpu,abc,more"),
        STUDY.replace("cpu,abc", "cpu"),
        STUDY.replace("abc", "x" * 200_000),
        STUDY.replace("1.0,cpu", "nan,cpu"),
    ],
)
def test_what_is_no_study_is_refused(tmp_path, text):
    (tmp_path / "study.csv").write_text(text)
    with pytest.raises(StudyError, match=r"study\.csv"):
        read_results(tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("v:a,m:a", "x,y"),
        ("v:a,m:a", "m:a,v:a"),
        ("v:a,m:a", "v:a,m:b"),
        ("v:a,m:a", "v:a"),
        ("v:a,m:a", "v:a,m:a,v:a,m:a"),
        ("\n3,", "\n3.5,"),
        ("\n9,", "\n1e300,"),
        (",4,", ",2.5,"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path, old, new):
    path = tmp_path / "noise.csv"
    assert old in TRACE
    path.write_text(TRACE.replace(old, new))
    with pytest.raises(MeasureError, match=r"noise\.csv"):
        read_trace(path)

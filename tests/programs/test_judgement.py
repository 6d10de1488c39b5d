"""Equal, refused, different, error: what the runner's words stand for."""

import numpy as np
import pytest

from tests.programs.judgement import Verdict, differences, judge
from tests.programs.outcome import Outcome, Setting
from tests.programs.program import Program

THREE = Setting(3)


def _outcome(**values):
    return Outcome(
        {name.replace("_weight_", " weight "): np.asarray(value, "float64") for name, value in values.items()}
    )


@pytest.mark.parametrize(
    ("plain", "got", "setting", "word"),
    [
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.0001]}, THREE, "equal"),
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.001]}, THREE, "different"),
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.0001]}, Setting(3, float64=True), "different"),
        ({"a": [1.0, 2.0]}, {"a": [1.0, np.nan]}, THREE, "different"),
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.0, 2.0]}, THREE, "different"),
        ({"a": [1.0]}, {}, THREE, "different"),
        ({"a": [1.0]}, {"a": [1.0], "b": [1.0]}, THREE, "different"),
        ({}, {}, THREE, "error"),
        ({"a": [np.nan]}, {"a": [np.nan]}, THREE, "error"),
        # A log that is nearly nothing is not judged by its own size, and neither is a tiny weight.
        ({"a": [1e-9]}, {"a": [2e-9]}, THREE, "equal"),
        ({"m_weight_0": [1.0], "m_weight_1": [0.0]}, {"m_weight_0": [1.0], "m_weight_1": [9e-7]}, THREE, "equal"),
        ({"m_weight_0": [1.0], "m_weight_1": [0.0]}, {"m_weight_0": [1.0], "m_weight_1": [2e-6]}, THREE, "different"),
        # Other draws: only whether they are numbers.
        ({"a": [1.0]}, {"a": [5.0]}, Setting(3, drawn=True), "equal"),
        ({"a": [1.0]}, {"a": [np.inf]}, Setting(3, drawn=True), "different"),
    ],
)
def test_numbers_are_judged_by_the_size_of_their_array(plain, got, setting, word):
    assert judge(setting, _outcome(**plain), [_outcome(**got)]).word == word


def test_every_worker_has_to_be_equal():
    good, bad = _outcome(a=[1.0]), _outcome(a=[2.0])
    assert judge(Setting(1, workers=2), good, [good, bad]).word == "different"


def test_error_of_ours_says_most():
    ours, other = Outcome(error="ParityError: no", refused=True), Outcome(error="Killed: late")
    plain = _outcome(a=[1.0])
    assert str(judge(THREE, plain, [other, ours])) == "error: ParityError: no"
    assert str(judge(THREE, plain, [ours, ours])) == "refused: ParityError: no"


@pytest.mark.parametrize(
    ("marks", "setting", "verdict", "expected"),
    [
        ("", THREE, Verdict("equal"), True),
        ("", THREE, Verdict("refused", "ParityError: x"), False),
        ("", THREE, Verdict("different", "a by 1"), False),
        ("REFUSED = 'ParityError'", THREE, Verdict("refused", "ParityError: x"), True),
        ("REFUSED = 'ParityError'", THREE, Verdict("refused", "DataError: x"), False),
        ("REFUSED = 'ParityError'", THREE, Verdict("equal"), False),
        ("REFUSED = 'ParityError'", Setting(1), Verdict("equal"), True),
        ("REFUSED = 'ParityError'", Setting(1, workers=2), Verdict("equal"), False),
        ("MAY_BE_REFUSED = 'ParityError'", THREE, Verdict("equal"), True),
        ("MAY_BE_REFUSED = 'ParityError'", THREE, Verdict("refused", "DataError: x"), False),
        ("MAY_BE_REFUSED = True", THREE, Verdict("refused", "DataError: x"), True),
    ],
)
def test_a_program_may_end_as_its_marks_say(tmp_path, marks, setting, verdict, expected):
    path = tmp_path / "script.py"
    path.write_text(marks)
    assert verdict.is_expected(Program(path), setting) is expected


def test_difference_is_named():
    [(difference, words)] = differences({"a": np.array([2.0])}, {"a": np.array([3.0])})
    assert (difference, words) == (0.5, "a by 0.5")

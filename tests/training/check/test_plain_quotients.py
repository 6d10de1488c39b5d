"""A float over the number of replicas is a plain number, of which the text of a script tells where it is from."""

import types

import pytest

from tests.processes import run_case
from tests.training.check.cases_plain_quotients import EXACT, SCRIPTS
from tfscale.training.check.plain_quotients import plain_quotients

CASES = "tests.training.check.cases_plain_quotients"


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_step_that_goes_by_it_is_refused(name, tmp_path):
    found = run_case(f"{CASES}:trained", args=(name, str(tmp_path)))
    assert "takes for a plain number what the script made of `strategy.num_replicas_in_sync`" in found
    assert "train.py" in found


@pytest.mark.parametrize("name", EXACT)
def test_one_that_is_told_in_time_is_exact(name, tmp_path):
    assert run_case(f"{CASES}:trained", args=(name, str(tmp_path))) < 1e-6


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("HALF = 2.0 / s.num_replicas_in_sync\ndef step(x): return x * HALF", ["HALF = 2.0 / s.num_replicas_in_sync"]),
        ("half = 2.0 / s.num_replicas\ndef step(x): return x * half", ["half = 2.0 / s.num_replicas"]),
        ("batch, n = 8, s.num_replicas\ndef step(x): return x * (1.0 / n)", ["1.0 / n"]),
        ("n: int = s.num_replicas_in_sync\nstep = lambda x: x * (-1.0 / n)", ["-1.0 / n"]),
        ("def step(x):\n    n = s.num_replicas_in_sync\n    return x * (1.0 / n)", []),
        ("def make(n):\n    a = 1.0 / s.num_replicas_in_sync\n    return lambda x: a * x\nstep = make(3)", ["a = 1.0"]),
        ("n = s.num_replicas_in_sync\nrate = 0.1 / n\ndef step(x): return x / n", []),
        ("n = s.num_replicas_in_sync\ndef step(x): return x / n * (8.0 / x)", []),
        ("n = s.num_replicas_in_sync\n@same\ndef step(x): return x * (1 / float(n))", ["1 / float(n)"]),
        ("n = s.num_replicas_in_sync\ndef step(x): return x / (x.shape[0] // n)", ["x.shape[0] // n"]),
        ("n = s.num_replicas_in_sync\nbatch = 8 * n\ndef step(x): return x / batch", []),
        ("n = s.num_replicas\ndef step(x): return [each * (1.0 / n) for each in (lambda: x * (2.0 / n))()]",
         ["1.0 / n", "2.0 / n"]),
        ("def step(x):\n    n = s.num_replicas\n    return (lambda: x * (1.0 / n))()", []),
        ("def rows(total):\n    size = total // s.num_replicas\n    return size\n"
         "size = 3.0\ndef step(x): return x.size * size", []),
        ("class Rows:\n    def __init__(self): self.size = 8 // s.num_replicas\ndef step(x): return size * x", []),
        ("class Step:\n    half = 2.0 / s.num_replicas\n    def step(self, x): return x * self.half\n"
         "step = Step.step", ["half = 2.0"]),
        ("n = int(s.num_replicas_in_sync)\ndef step(x): return x * (1.0 / n)", []),
        ("class Step:\n    def __init__(self): self.a = 1.0 / s.num_replicas_in_sync\n"
         "    def step(self, x): return x * self.a\nstep = Step().step.__func__", ["a = 1.0"]),
    ],
)  # fmt: skip
def test_what_a_text_shows(text, shown, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(text)
    strategy = types.SimpleNamespace(num_replicas_in_sync=3, num_replicas=3)
    space = {"s": strategy, "same": lambda function: function}
    exec(compile(text, str(path), "exec"), space)
    found = plain_quotients([space["step"]])
    assert len(found) == len(shown)
    assert all(each in place and "of train.py" in place for each, place in zip(shown, found, strict=True))


def test_code_without_a_text_shows_nothing():
    space = {}
    exec("n = 3\ndef step(x): return x / n", space)
    assert plain_quotients([space["step"]]) == []

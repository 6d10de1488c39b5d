"""The judge: what is well, and every way to be lost."""

import pytest

from tests.chaos.judgement import advice, judge
from tests.chaos.outcome import Job, Tried
from tests.chaos.schedule import EPOCHS, EXAMPLES, Attempt, Fault, Schedule
from tests.processes import Ended

OURS = "Traceback (most recent call last)\n  File\ntfscale.errors.ClusterError: All workers must.\nReceived: worker 1\n"
DELETE = "tfscale.errors.RecoveryError: A run.\nReceived: none. Delete the directory to begin anew.\n"
WHOLE = "tfscale WARNING the state is saved after epochs only.\n"
NUMBERS = {
    "seen": [EPOCHS] * EXAMPLES,
    "epochs": list(range(EPOCHS)),
    "learned": [1.0, -2.0],
    "history": {"loss": [3.0, 2.0, 1.0]},
}
KILLED = Fault("one killed", 1, 3)
LAST = Tried(Attempt(2), [Ended(0, NUMBERS, "")] * 2)


def first(*ended, befell=(KILLED,), victims=(1,), **others):
    return Tried(Attempt(2), list(ended), set(victims), list(befell), **others)


def numbers(**others):
    return Tried(Attempt(2), [Ended(0, NUMBERS, ""), Ended(0, {**NUMBERS, **others}, "")])


def said(text):
    return Tried(Attempt(1), [Ended(0, NUMBERS, text)])


GONE = Ended(-9, None, "")
WELL = {
    "nothing": ("tf.data in order", [LAST], []),
    "rounding": ("tf.data in order", [numbers(learned=[1.0, -2.00001])], []),
    "survivor says who": ("tf.data in order", [first(Ended(1, None, OURS), GONE), LAST], []),
    "survivor was at the end": ("tf.data in order", [first(Ended(0, NUMBERS, ""), GONE), LAST], []),
    "SIGTERM": (
        "tf.data in order",
        [first(Ended(143, None, ""), Ended(143, None, ""), befell=[Fault("SIGTERM")]), LAST],
        [],
    ),
    "second run refused": (
        "tf.data in order",
        [first(*LAST.ended, victims=(), refusal="A directory belongs to one run at a time.")],
        [],
    ),
    "damaged, and begun anew": (
        "tf.data in order",
        [first(Ended(1, None, DELETE), befell=[Fault("all damaged")], victims=()), LAST],
        [DELETE],
    ),
    "an epoch again": ("tf.data, drawn once", [said("epoch 2 is begun again: behind step 3")], []),
    "whole epochs": ("generator", [said(WHOLE + "goes on in epoch 2 after 0 of its steps")], []),
}
# The same with the words that the judge finds for them.
LOST = {
    "seen twice": ("tf.data in order", [numbers(seen=[4] * EXAMPLES)], [], "worker 1 has seen the examples so often"),
    "an epoch is missing": ("tf.data in order", [numbers(epochs=[1, 2])], [], "has the epochs [1, 2]"),
    "learned": ("tf.data in order", [numbers(learned=[1.0, -2.001])], [], "difference of 5.0e-04"),
    "not a number": ("tf.data in order", [numbers(learned=[1.0, float("nan")])], [], "difference of inf"),
    "history": ("tf.data in order", [numbers(history={"loss": [3.0, 2.0, 1.1]})], [], "another loss in its History"),
    "hang": ("tf.data in order", [first(Ended(None, None, ""), GONE)], [], "start 0: worker 0 hangs"),
    "victim hangs": ("tf.data in order", [first(LAST.ended[0], Ended(None, None, ""))], [], "worker 1 hangs"),
    "crash": ("tf.data in order", [first(Ended(-6, None, OURS), GONE)], [], "status -6 and no error of ours"),
    "not ours": ("tf.data in order", [first(Ended(1, None, "ValueError: x"), GONE)], [], "no error of ours"),
    "ours before another": (
        "tf.data in order",
        [first(Ended(1, None, OURS + "KeyError: 'x'\n"), GONE)],
        [],
        "no error of ours",
    ),
    "raw trace": (
        "tf.data in order",
        [first(Ended(1, None, OURS.replace("File", "Graph execution error")), GONE)],
        [],
        "shows 'Graph execution error'",
    ),
    "left without a word": ("tf.data in order", [first(Ended(0, None, ""), GONE)], [], "status 0 and no error"),
    "143 of nobody": ("tf.data in order", [first(Ended(143, None, ""), GONE)], [], "status 143 and no error"),
    "ended for nothing": (
        "tf.data in order",
        [first(Ended(1, None, OURS), befell=[Fault("paused")], victims=())],
        [],
        "nothing had befallen it that ends a job",
    ),
    "second run": ("tf.data in order", [first(*LAST.ended, refusal="")], [], "a second run was not refused by name"),
    "anew for nothing": ("tf.data in order", [LAST], [DELETE], "nobody had damaged its files"),
    "never complete": ("tf.data in order", [first(Ended(1, None, OURS), GONE)], [], "not complete after 1 starts"),
    "again without need": ("tf.data in order", [said("epoch 2 is begun again")], [], "always the same"),
    "within another order": (
        "tf.data, drawn once",
        [said("goes on in epoch 2 after 3 of its steps")],
        [],
        "goes on in epoch 2 after 3 of its steps",
    ),
    "says nothing": ("generator", [LAST], [], "does not say that the state is saved after epochs only"),
}


def judged(data, starts, begun_anew):
    return judge(Schedule(0, data, ()), Job(starts, begun_anew), NUMBERS)


@pytest.mark.parametrize("name", WELL)
def test_well(name):
    assert judged(*WELL[name]) == ""


@pytest.mark.parametrize("name", LOST)
def test_lost(name):
    *job, expected = LOST[name]
    assert expected in judged(*job)


def test_without_a_reference_examples_are_counted():
    assert judge(Schedule(0, "tf.data, drawn once", ()), Job([numbers(learned=[9.0, 9.0])]), None) == ""


@pytest.mark.parametrize(("output", "expected"), [(OURS, ""), (DELETE, DELETE.strip()), ("", "")])
def test_advice(output, expected):
    assert advice(Tried(Attempt(1), [Ended(1, None, output)])) == expected

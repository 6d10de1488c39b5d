"""What a step carries lasts as long as its `with`, is its thread's own, and prints."""

import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tfscale.step_context import Flag, Slot, step_context

ROWS = Slot[int | None]("rows")
MET = Slot[list]("met", list, shown=len)
FLAG = Flag("flag")


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    assert (ROWS.value, FLAG.is_raised) == (None, False)
    MET.value.clear()


def test_comes_back_in_the_order_of_the_withs():
    with ROWS.carrying(3), FLAG.raised():
        with ROWS.carrying(None):
            assert (ROWS.value, FLAG.is_raised) == (None, True)
        with ROWS.carrying(5):
            assert ROWS.value == 5
        assert ROWS.value == 3
        with FLAG.raised():
            assert FLAG.is_raised
        assert FLAG.is_raised


def test_comes_back_after_an_error():
    with ROWS.carrying(3):
        with pytest.raises(ValueError, match="of the step"), ROWS.carrying(4), FLAG.raised():
            raise ValueError("of the step")
        assert (ROWS.value, FLAG.is_raised) == (3, False)


def test_a_thread_inherits_nothing_and_leaves_nothing():
    found, inside, looked = [], threading.Event(), threading.Event()

    def step():
        found.append((ROWS.value, FLAG.is_raised, list(MET.value), repr(step_context())))
        MET.value.append("other")
        with ROWS.carrying(7):
            inside.set()
            assert looked.wait(10)

    MET.value.append("own")
    with ROWS.carrying(3), FLAG.raised():
        thread = threading.Thread(target=step)
        thread.start()
        assert inside.wait(10)
        assert (ROWS.value, MET.value) == (3, ["own"])
        looked.set()
        thread.join()
    assert found == [(None, False, [], "StepContext()")]


def test_what_a_step_fills_lasts_beyond_what_it_carries():
    with ROWS.carrying(3):
        MET.value.append("a")
    assert MET.value == ["a"]
    with MET.carrying(["b"]):
        MET.value.append("c")
        assert MET.value == ["b", "c"]
    assert MET.value == ["a"]


def test_prints_what_is_carried():
    def printed():
        before = repr(step_context())
        with ROWS.carrying(3), FLAG.raised(), MET.carrying(["a", "b"]):
            return before, repr(step_context())

    # A thread of its own: what other tests have begun in this one lasts as long as it.
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(printed).result() == ("StepContext()", "StepContext(rows=3, flag=True, met=2)")


def test_is_frozen():
    with ROWS.carrying(3):
        context = step_context()
        with pytest.raises(dataclasses.FrozenInstanceError):
            context.carried = {}
        with pytest.raises(TypeError):
            context.carried[ROWS] = 4
    assert context.carried[ROWS] == 3

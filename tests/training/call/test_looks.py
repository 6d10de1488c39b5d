"""Which calls are looked at, and which of a function for each kind of data?"""

import numpy as np
import pytest
import tensorflow as tf

from tfscale.training.call.kinds import by_kind, kind_of
from tfscale.training.call.looks import Looks


class Refusing:
    """Refuses whatever it looks at, as often as it was told."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self, batch: object) -> None:
        if self.left:
            self.left -= 1
            raise ValueError("refused")

    def again(self, batch: object, *, is_next: bool) -> bool:
        self(batch)
        return False


def _runs(looks: Looks, calls: int) -> list[str]:
    found = []
    for _ in range(calls):
        if not looks.are_due():
            found.append("not looked at")
            continue
        try:
            looks("a batch")
            found.append("looked at")
        except ValueError:
            found.append("refused")
    return found


def test_calls_of_the_powers_of_two_are_looked_at():
    looked_at = ["looked at" if call in (1, 2, 4, 8) else "not looked at" for call in range(1, 10)]
    assert _runs(Looks(Refusing(0)), 9) == looked_at


def test_what_was_refused_is_looked_at_again_however_often_it_is_called():
    assert _runs(Looks(Refusing(5)), 7) == ["refused"] * 5 + ["looked at"] * 2


X, Y, W = np.zeros((8, 3), "float32"), np.zeros(8, "int32"), np.ones(8, "float32")


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        ((X[:5], Y[:5]), True),
        ((X[:, :2], Y), True),
        ((tf.constant(X), tf.constant(Y)), True),
        (tf.data.Dataset.from_tensor_slices((X, Y)).batch(4).element_spec, True),
        ((X, Y, W), False),
        ((X, None), False),
        (X, False),
        ((X, Y[:, None]), False),
        ((X, W), False),
        (({"a": X}, Y), False),
        ((tf.sparse.from_dense(X), Y), False),
    ],
)
def test_sizes_are_no_kind(other, is_same):
    assert (kind_of((X, Y)) == kind_of(other)) is is_same


def test_each_kind_has_a_function_of_its_own_that_is_kept():
    made = []

    def of_kind(look):
        made.append(look)
        return lambda data: (look, next(iter(data)))

    run = by_kind("first look", of_kind, lambda: f"look {len(made)}")
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)
    ran = [run([batch])[0] for batch in ((X, Y), (X, Y, W), (X, Y), (X, Y, W))]
    assert [*ran, run(iter(dataset))[0]] == ["first look", "look 1"] * 2 + ["first look"]
    assert made == ["first look", "look 1"]


def test_where_nothing_is_looked_at_there_is_one_function():
    function = by_kind(None, lambda look: [].append, lambda: pytest.fail("looked anew"))
    function((X, Y))
    function((X, Y, W))

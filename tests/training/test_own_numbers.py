"""Numbers of Python that a model of the user's holds.

That all replicas begin a step with the same ones: the contract's table "numbers".
"""

import keras

from tfscale.training.own_numbers import OwnNumbers


class Counting(keras.Model):
    of_class = 1

    def __init__(self):
        super().__init__()
        self.inner = keras.layers.Dense(2)
        self.steps = 3
        self.is_ready = False


def test_what_was_changed_is_put_back():
    model = Counting()
    numbers = OwnNumbers(model)
    found = {name.split(" ")[0]: int(value) for name, value in numbers.read().items()}
    assert {"Counting.of_class": 1, "Counting.steps": 3}.items() <= found.items()
    assert not any("is_ready" in name or "units" in name for name in found)
    with numbers.unchanged():
        model.steps += 1
        model.of_class += 1
        model.made, model.is_ready, model.inner.units = 5.0, True, 7
    assert (model.steps, model.of_class, hasattr(model, "made")) == (3, 1, False)
    # That something was made stays, and what Keras's own layers hold.
    assert (model.is_ready, model.inner.units) == (True, 7)

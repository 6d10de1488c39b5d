"""A look at a batch leaves the generators as they were."""

import random

import numpy as np

from tfscale.data.drawing import drawing_again

BESIDE = np.random.default_rng(1)


class Drawing:
    def __init__(self):
        self.generators = [BESIDE, random, np.random]
        self.new, self.old, self.plain = np.random.default_rng(2), np.random.RandomState(3), random.Random(4)

    def batch(self):
        return [
            BESIDE.normal(),
            self.new.normal(),
            self.old.normal(),
            np.random.normal(),
            *(each.random() for each in (self.plain, random)),
        ]


def test_what_was_drawn_is_drawn_again():
    data = Drawing()
    with drawing_again(data):
        looked_at = data.batch()
    assert data.batch() == looked_at
    assert data.batch() != looked_at

import collections

import numpy as np
import sklearn.datasets

from tests.processes import run_workers


def test_two_processes_build_the_same_data_set_at_once(tmp_path):
    (first, first_kept), (second, second_kept) = run_workers(
        "tests.examples.cases_examples:build_digits", 2, args=(str(tmp_path),)
    )
    assert first == second
    assert first_kept
    assert second_kept

    digits = sklearn.datasets.load_digits()
    images = (digits.images / 16).astype(np.float32)
    expected = [(image.tobytes(), int(label)) for image, label in zip(images, digits.target, strict=True)]
    assert collections.Counter(first["train"]) == collections.Counter(expected[:1500])
    assert collections.Counter(first["test"]) == collections.Counter(expected[1500:])

"""What a call that failed has held is free before Python ends."""

import subprocess
import sys

import pytest

from tests.repository import ROOT

SCRIPT = """
import keras, numpy as np, tfscale

class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return {"a": np.zeros((12, 6), "float32"), "z": np.zeros(5, "float32")}

tfscale.simulate_replicas(2)
dp = tfscale.DataParallel(global_batch=12)
with dp.scope():
    a, z = keras.Input((6,), name="a"), keras.Input((), name="z")
    model = dp.prepare(keras.Model({"a": a, "z": z}, keras.layers.Dense(1)(a)))
try:
    model.predict(Batches(), verbose=0)
except tfscale.DataError:
    CAUGHT
"""


@pytest.mark.parametrize("caught", ["pass", "raise"])
def test_an_iterator_of_python_data_does_not_outlive_python(caught):
    argv = [sys.executable, "-c", SCRIPT.replace("CAUGHT", caught)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == (caught == "raise")
    assert ("5 rows beside 12" in done.stderr.splitlines()[-1]) == (caught == "raise")
    # TensorFlow's words where it was freed too late; it may wait for ever then.
    assert "Python interpreter state is not initialized" not in done.stderr

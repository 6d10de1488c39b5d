"""Masks, and the logits behind probabilities, are found on the rows of all replicas as on those of one device."""

import numpy as np
import pytest

from tests.exact.cases_attached import PROGRAMS
from tests.processes import run_case


@pytest.fixture(scope="module", params=[({}, [*PROGRAMS]), ({"run_eagerly": True}, ["shares"])], ids=["graph", "eager"])
def trained(request):
    options, names = request.param
    return run_case("tests.exact.cases_attached:trained", args=(names, options))


@pytest.mark.parametrize("name", PROGRAMS)
def test_training_is_that_of_one_device(trained, name):
    for own, expected in zip(*trained.get(name, ((), ())), strict=True):
        np.testing.assert_allclose(own, expected, rtol=1e-4, atol=1e-5)

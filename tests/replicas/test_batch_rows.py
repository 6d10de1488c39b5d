"""What holds the rows of a batch: a table of specs, and one training each on replicas beside plain Keras."""

import numpy as np
import pytest
import tensorflow as tf

from tests.training.together import Failure, run_together
from tfscale import DataError
from tfscale.replicas.batch_rows import RowPlan, leaves_of, plan_rows
from tfscale.replicas.replica_batch import LocalReplicas, split_global_batch

CASES = "tests.replicas.cases_batch_rows"
N = 2


def spec(*shape):
    return tf.TensorSpec(shape, tf.float32)


OPEN, LABELS = spec(None, 6), spec(None)
PLANS = [
    # name, spec of a batch, what is decided
    ("one tensor", OPEN, RowPlan(0)),
    ("one tensor, known", spec(12, 6), RowPlan(0)),
    ("no rows at all", (spec(0, 6), spec(0)), RowPlan(1)),
    ("rows and labels", (OPEN, LABELS), RowPlan(1, equal=(0,))),
    ("all known and equal", (spec(12, 6), spec(12), spec(12)), RowPlan(1)),
    ("scalar beside", ({"a": OPEN, "s": spec()}, LABELS), RowPlan(2, equal=(0,))),
    ("missing labels", (OPEN, None), RowPlan(0)),
    ("table after the rows", ({"a": OPEN, "z": spec(4)}, LABELS), RowPlan(2, equal=(0,), whole=(1,))),
    ("table before the rows", ({"a": spec(4), "z": OPEN}, LABELS), RowPlan(2, equal=(1,), whole=(0,))),
    ("table of one row", ({"a": spec(1, 6), "z": OPEN}, LABELS), RowPlan(2, equal=(1,), whole=(0,))),
    ("table, known batch", ({"a": spec(4), "z": spec(12, 6)}, spec(12)), RowPlan(2, whole=(0,))),
    ("table, known batch, weights", ({"a": spec(4), "z": spec(12, 6)}, spec(12), spec(12)), RowPlan(2, whole=(0,))),
    ("table among the labels", (OPEN, {"a": spec(2), "y": LABELS}), RowPlan(2, equal=(0,), whole=(1,))),
    ("table without labels", {"a": spec(4), "z": OPEN}, RowPlan(1, whole=(0,))),
    ("several tables", ({"a": spec(4), "b": spec(12), "z": OPEN}, LABELS), RowPlan(3, equal=(2,), whole=(0, 1))),
    ("nested", ({"m": [spec(4), (OPEN, spec(7, 7))]}, LABELS), RowPlan(3, equal=(1,), whole=(0, 2))),
    ("two open inputs", ({"a": OPEN, "z": LABELS}, LABELS), RowPlan(2, open=(0, 1))),
    ("two open inputs without labels", {"a": OPEN, "z": LABELS}, RowPlan(0, equal=(1,))),
    ("known labels", (OPEN, spec(12)), RowPlan(1, equal=(0,))),
    ("known labels, known input", ({"a": OPEN, "z": spec(12)}, spec(12)), RowPlan(2, open=(0,))),
    ("known labels, table", ({"a": spec(4), "z": OPEN}, spec(12)), RowPlan(2, equal=(1,), whole=(0,))),
    ("known inputs, open labels", (spec(12, 6), LABELS), RowPlan(0, equal=(1,))),
    ("unknown rank", (tf.TensorSpec(None, tf.float32), LABELS), RowPlan(1, equal=(0,))),
    ("four parts", (OPEN, LABELS, LABELS, spec(2)), RowPlan(0, equal=(1, 2), whole=(3,))),
    ("sparse", (tf.SparseTensorSpec((None, 6)), LABELS), RowPlan(1, equal=(0,))),
    ("ragged", (tf.RaggedTensorSpec((None, None)), LABELS), RowPlan(1, equal=(0,))),
]
REFUSED = [
    ("labels of another number", (spec(12, 6), spec(24)), r"x of shape \(12, 6\), y of shape \(24,\)"),
    (
        "known, without labels",
        {"a": spec(4), "z": spec(12, 6)},
        r"x\['a'\] of shape \(4,\), x\['z'\] of shape \(12, 6\)",
    ),
    ("two numbers in both", ((spec(4), spec(12)), (spec(4), spec(12))), r"x\[0\] of shape \(4,\)"),
    ("known inputs, open labels", ({"a": spec(4), "z": spec(12, 6)}, LABELS), r"x\['a'\] of shape \(4,\)"),
    ("only scalars", (spec(), spec()), "only scalars"),
]


@pytest.mark.parametrize(("name", "data", "expected"), PLANS, ids=[row[0] for row in PLANS])
def test_plan(name, data, expected):
    assert plan_rows(leaves_of(data)) == expected


@pytest.mark.parametrize(("name", "data", "received"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_cannot_be_told_is_refused_by_name(name, data, received):
    with pytest.raises(DataError, match=rf"\nReceived: .*{received}"):
        plan_rows(leaves_of(data))


def test_paths_are_in_the_order_of_the_leaves():
    data = ({"z": [OPEN, OPEN], "a": OPEN}, (LABELS,))
    assert [leaf.path for leaf in leaves_of(data)] == ["x['a']", "x['z'][0]", "x['z'][1]", "y[0]"]


@pytest.mark.parametrize("names", [("a", "z"), ("z", "a")])
def test_split_leaves_a_table_whole(names):
    rows, table = names
    data = ({rows: tf.range(12), table: tf.range(4)}, tf.range(12))
    for part in split_global_batch(data, LocalReplicas(0, 3, 3)):
        np.testing.assert_array_equal(part.data[0][table], np.arange(4))
        assert part.data[0][rows].shape == (4,)


TRAININGS = [
    # how the data come, name of the rows, name of the table, its rows
    *[("tf.data", "a", "z", k) for k in (1, 12)],
    ("tf.data", "z", "a", 4),
    ("drop_remainder", "z", "a", 5),
    ("PyDataset", "a", "z", 5),
    ("PyDataset", "a", "z", 2),
    ("generator", "z", "a", 5),
    ("micro_batch, PyDataset", "a", "z", 2),
    ("micro_batch auto", "z", "a", 4),
]
WRONG = {
    "labels of another number": "x['a'] of shape (None, 6) with 12 rows beside 24 of y",
    "labels of another number, known": "x['a'] of shape (12, 6), x['z'] of shape (12,), y of shape (24,)",
    "sometimes the rows": "x['z'] of shape (None,), which has the 6 rows of this batch",
    "no labels": "x['z'] of shape (None,) with 5 rows beside 12 of x['a']",
}


@pytest.fixture(scope="module")
def result_of():
    found = {}
    for n in (0, N):
        found |= run_together([(f"{CASES}:train", (n, *row)) for row in TRAININGS if n or "micro" not in row[0]])
    found |= run_together([(f"{CASES}:refused", (N, name)) for name in WRONG])

    def find(function, *args):
        result = found[(f"{CASES}:{function}", args)]
        assert not isinstance(result, Failure), result
        return result

    return find


@pytest.mark.parametrize("row", TRAININGS, ids=str)
def test_side_input_reaches_every_replica_whole(result_of, row):
    kind, *others = row
    plain = "PyDataset" if "PyDataset" in kind else "tf.data" if "micro" in kind else kind
    expected = result_of("train", 0, plain, *others)
    ours = result_of("train", N, *row)
    for name, arrays in expected.items():
        for one, other in zip(ours[name], arrays, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", WRONG)
def test_refused_on_replicas(result_of, name):
    said = result_of("refused", N, name)
    assert said.startswith("DataError: ")
    assert WRONG[name] in said
    assert "\nReceived: " in said

import numpy as np
import pytest

from tests.training.together import Failure, run_together

CASES = "tests.replicas.cases_all_reduce"

SUMS = [
    # replicas, dtypes, collectives per replica
    (1, ("float32", "int32"), 0),
    (2, ("float32",), 1),
    (3, ("float32",) * 12, 1),
    (3, ("float16", "float32", "bfloat16"), 1),
    (3, ("float32", "float64", "float32"), 2),
    (3, ("float32", "int64", "float16", "int32"), 3),
    (3, ("int8", "uint16", "int32"), 1),
]
MEANS = [
    # rows of each replica, whose values are its number; their mean
    ((4,), 0.0),
    ((1, 1), 0.5),
    ((1, 3), 0.75),
    ((2, 0, 6), 1.5),
    ((0, 5, 0), 1.0),
    ((0, 0), np.nan),
]
GATHERED_ROWS = (1, 2, 5)
# What a data set holds: pictures are bytes, features of a table strings.
DTYPES = ("string", "uint8", "bool", "int16", "uint32", "uint64", "int64", "float16")


@pytest.fixture(scope="module")
def results():
    by_replicas = {
        1: [],
        2: [],
        3: [(f"{CASES}:{each}", (3,)) for each in ("sparse_sums", "uneven_slices", "squeezed_rows", "one_object")],
    }
    by_replicas[3].append((f"{CASES}:sizes_of_graphs", (3, 10)))
    for num_replicas, dtypes, _ in SUMS:
        by_replicas[num_replicas].append((f"{CASES}:sums", (num_replicas, dtypes)))
    for counts, _ in MEANS:
        by_replicas[len(counts)].append((f"{CASES}:means", (counts,)))
    for rows in GATHERED_ROWS:
        by_replicas[3].append((f"{CASES}:gathered", (3, rows)))
    by_replicas[3] += [(f"{CASES}:all_rows", (dtype,)) for dtype in DTYPES]
    by_replicas[3].append((f"{CASES}:slopes_of_gathered", ((2, 0, 3),)))
    # Last: it changes how the strategy of its process sends.
    by_replicas[2].append((f"{CASES}:packs", (2,)))
    by_replicas[3].append((f"{CASES}:shares", ((3, 0, 5),)))
    by_replicas[3].append((f"{CASES}:alone", (3,)))
    found = {}
    for calls in by_replicas.values():
        found |= run_together(calls)
    return found


def test_one_object_of_all_replicas(results):
    assert result_of(results, "one_object", 3) == {"eager": [3.0] * 6, "graph": [3.0] * 6}


def result_of(results, function, *args):
    result = results[(f"{CASES}:{function}", args)]
    assert not isinstance(result, Failure), result
    return result


@pytest.mark.parametrize(("num_replicas", "dtypes", "collectives_per_replica"), SUMS)
def test_sums_in_one_collective_per_dtype(results, num_replicas, dtypes, collectives_per_replica):
    found = result_of(results, "sums", num_replicas, dtypes)
    total = num_replicas * (num_replicas + 1) // 2
    for result in found["results"]:
        for value, dtype in zip(result, dtypes, strict=True):
            assert value.dtype.name == dtype
            np.testing.assert_array_equal(value.astype("float64"), np.full(value.shape, total))
    assert found["collectives"] == collectives_per_replica * num_replicas


def test_large_tensors_travel_alone_within_a_process(results):
    found = result_of(results, "alone", 3)
    rows = np.zeros((2, 32))
    rows[1] = 6
    expected = [np.full(16, 6.0), rows, np.full((5, 4), 12.0), np.full(3, 18.0), np.array(6.0)]
    for value, right in zip(found["sums"], expected, strict=True):
        for own in value:
            np.testing.assert_array_equal(own, right)
    # In the order in which they are made; what is small travels together, and the sparse one as its rows, gathered.
    assert found["sizes"] == [64, 80, 4 * 4]


def test_sparse_dense_and_missing_gradients(results):
    found = result_of(results, "sparse_sums", 3)
    # Row r is held by the replicas r, r + 1, ... 2, which give r + 1, r + 2, ... 3.
    expected = np.array([[6.0, 6.0], [5.0, 5.0], [3.0, 3.0], [0.0, 0.0]])
    for sparse, is_missing, dense in found["results"]:
        np.testing.assert_array_equal(sparse, expected)
        assert is_missing
        assert dense == 3.0


def test_sparse_gradients_with_uneven_rows_tell_their_numbers_once(results):
    found = result_of(results, "uneven_slices", 3)
    for (uneven_values, uneven_places), (even_values, even_places) in found["results"]:
        np.testing.assert_array_equal(uneven_places, [1, 2, 2])
        np.testing.assert_array_equal(uneven_values, [[1, 1], [2, 2], [2, 2]])
        np.testing.assert_array_equal(even_places, [0, 3, 1, 3, 2, 3])
        np.testing.assert_array_equal(even_values[:, 0], [0.5, 0.5, 1.5, 1.5, 2.5, 2.5])
    assert found["collectives"] == 3 * (1 + 2 + 2)


def test_a_tensor_that_is_summed_adds_few_operations(results):
    found = result_of(results, "sizes_of_graphs", 3, 10)
    assert (found["dense"][1] - found["dense"][0]) / 10 <= 4
    # TensorFlow's own way takes 200 on three replicas.
    assert (found["sparse"][1] - found["sparse"][0]) / 10 <= 100


def test_packs(results):
    found = result_of(results, "packs", 2)
    # Replicas 1 and 2 add i and 2 i.
    np.testing.assert_array_equal(found["sums"], [[3 * i] * 2 for i in range(7)])
    # The total of replica r is 2 sum (s_i)^2 with s_i = i (r_1 + r_2); both totals have a slope in r_1.
    assert found["gradient"] == pytest.approx(2 * sum(2 * 2 * 3 * i * i for i in range(7)))
    assert found["orders"] == 1


@pytest.mark.parametrize(("counts", "expected"), MEANS)
def test_global_mean(results, counts, expected):
    for found in result_of(results, "means", counts):
        assert found == pytest.approx(expected, nan_ok=True)


def test_replicas_agree_on_their_shares(results):
    found = result_of(results, "shares", (3, 0, 5))
    assert [share["first"] for share in found] == [0, 3, 3]
    assert [share["examples"] for share in found] == [3, 0, 5]
    assert [share["all"] for share in found] == [8, 8, 8]
    np.testing.assert_allclose([share["weight"] for share in found], [3 / 8, 0, 5 / 8])


@pytest.mark.parametrize("rows", GATHERED_ROWS)
def test_gathered_rows_and_their_gradient(results, rows):
    found = result_of(results, "gathered", 3, rows)
    for gathered in found["gathered"]:
        np.testing.assert_array_equal(gathered, found["x"])
    # The sum of squares of all rows: each replica keeps the slope of its own.
    np.testing.assert_allclose(np.concatenate(found["gradients"]), 2 * found["x"])
    # One for all rows, as in `loss(scores, 1.0)`.
    assert found["numbers stay"] == [True] * 3


def test_slopes_of_what_is_gathered_by_hand(results):
    found = result_of(results, "slopes_of_gathered", (2, 0, 3))
    rows, (first, second) = found["rows"], found["slopes"]
    # 1 + 2 + 3 times 3 x^2; the slopes of a replica's own rows are functions of these alone, on every replica.
    np.testing.assert_allclose(first, 6 * 3 * rows**2)
    np.testing.assert_allclose(second, 6 * 6 * rows)


def test_rows_of_several_ranks_are_an_error_after_which_collectives_go_on(results):
    message, gathered = result_of(results, "squeezed_rows", 3)
    assert "another rank on another replica" in message
    assert gathered == [[[[0.0, 0.0]] * 2 + [[1.0, 1.0]] * 2 + [[2.0, 2.0]] * 2]] * 3


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_any_dtype_are_gathered(results, dtype):
    assert result_of(results, "all_rows", dtype) == [[True]] * 3

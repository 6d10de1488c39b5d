"""Whatever devices there are, what L logical replicas found is added up in one order."""

import itertools

import pytest

from tfscale.gradients.fixed_tree import fold, tree_schedule

LOGICAL = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 31)


def _added(left, right):
    return f"({left}+{right})"


@pytest.mark.parametrize("num_logical", LOGICAL)
def test_one_order_on_any_number_of_devices(num_logical):
    leaves = [str(leaf) for leaf in range(num_logical)]
    (expected,) = fold(leaves, tree_schedule(num_logical, 1).sums_after, _added)
    assert [part for part in leaves if part in expected.replace("(", "").replace(")", "").split("+")] == leaves
    for devices in range(1, num_logical + 1):
        schedule = tree_schedule(num_logical, devices)
        roots = []
        for device in range(devices):
            own = slice(device * num_logical // devices, (device + 1) * num_logical // devices)
            found = fold(leaves[own], schedule.sums_after[own], _added)
            assert len(found) == schedule.first_root[device + 1] - schedule.first_root[device]
            roots += found
        assert fold(roots, schedule.sums_of_roots, _added) == [expected]


@pytest.mark.parametrize("num_logical", LOGICAL)
def test_few_sums_are_kept_and_sent(num_logical):
    most = max(1, 2 * (num_logical - 1).bit_length())
    for devices in range(1, num_logical + 1):
        schedule = tree_schedule(num_logical, devices)
        assert schedule.depth <= most
        assert all(after - before <= most for before, after in itertools.pairwise(schedule.first_root))


def test_a_device_with_all_sends_one_sum():
    assert tree_schedule(8, 1).roots == ((0, 8),)
    assert tree_schedule(8, 2).roots == ((0, 4), (4, 8))

"""Whom a worker reaches, against the lines along which TensorFlow and NCCL send."""

import math

import pytest

from tfscale.cluster.preflight.layout import find_children, find_parent, find_partners

SIZES = [*range(1, 70), 127, 128, 129, 1000, 1024, 4097]


def nccl_tree(num_ranks):
    """Pairs of the two binary trees that NCCL builds over hosts (trees.cc), by the picture in its comments."""

    def parent_of(rank):
        bit = 1
        while bit < num_ranks and not bit & rank:
            bit <<= 1
        up = (rank ^ bit) | (bit << 1)
        return rank ^ bit if up >= num_ranks else up

    pairs = {(rank, parent_of(rank)) for rank in range(1, num_ranks)}
    # The second is the first mirrored, or shifted by one where their number is odd.
    if num_ranks % 2:
        return pairs | {((one + 1) % num_ranks, (other + 1) % num_ranks) for one, other in pairs}
    return pairs | {(num_ranks - 1 - one, num_ranks - 1 - other) for one, other in pairs}


@pytest.mark.parametrize("num_workers", SIZES)
def test_collectives_send_between_partners_only(num_workers):
    partners = [find_partners(rank, num_workers) for rank in range(num_workers)]
    for rank in range(num_workers):
        # The ring; each gets from the one before, and NCCL's sender is the one that connects.
        assert {(rank - 1) % num_workers, (rank + 1) % num_workers} <= partners[rank] | {rank}
        # The tree of a broadcast: who gets connects to who has, 2r + 1 and 2r + 2 to r.
        assert all(rank in partners[child] for child in (2 * rank + 1, 2 * rank + 2) if child < num_workers)
        assert {0, find_parent(rank)} <= partners[rank] | {rank}
        assert rank not in partners[rank]
        assert all(0 <= other < num_workers for other in partners[rank])
    for one, other in nccl_tree(num_workers):
        assert other in partners[one] or one in partners[other]


@pytest.mark.parametrize("num_workers", SIZES)
def test_small_jobs_are_strict_and_large_ones_cheap(num_workers):
    for rank in range(num_workers):
        partners = find_partners(rank, num_workers)
        if num_workers <= 16:
            assert partners == set(range(num_workers)) - {rank}
        else:
            assert len(partners) <= math.ceil(math.log2(num_workers)) + 4


@pytest.mark.parametrize("num_workers", SIZES)
def test_each_reports_to_one_that_expects_it(num_workers):
    expected = {child: rank for rank in range(num_workers) for child in find_children(rank, num_workers)}
    assert expected == {rank: find_parent(rank) for rank in range(1, num_workers)}
    assert all(parent < child for child, parent in expected.items())
    assert max(len(find_children(rank, num_workers)) for rank in range(num_workers)) <= 32

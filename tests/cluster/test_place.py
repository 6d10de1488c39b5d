import pytest

from tfscale.cluster.place import CALLS, Place, describe_memory, describe_place, read_place, to_wire

FULL = Place(
    call=3,
    kind=1,
    epoch=2,
    step=7,
    total=17,
    ended_epochs=1,
    ended_total=10,
    last_total=5,
    model=9,
    used_mib=1,
    free_mib=2,
    data=1,
    data_pass=2,
    data_batches=10,
)


@pytest.mark.parametrize("place", [Place(), FULL])
def test_there_and_back(place):
    assert read_place(to_wire(place)) == place


@pytest.mark.parametrize("index", range(len(to_wire(FULL))))
@pytest.mark.parametrize("value", [-1, 1.0, "1", None, True, [1], 1 << 40])
def test_wrong_numbers(index, value):
    numbers = to_wire(FULL)
    numbers[index] = value
    with pytest.raises(ValueError, match="counts"):
        read_place(numbers)


@pytest.mark.parametrize("numbers", [None, [], to_wire(FULL)[1:], [0, *to_wire(FULL)], {}, "0" * len(to_wire(FULL)), 3])
def test_wrong_kinds(numbers):
    with pytest.raises(ValueError, match="counts"):
        read_place(numbers)


def test_unknown_call():
    with pytest.raises(ValueError, match="kinds"):
        read_place([1, len(CALLS), *to_wire(FULL)[2:]])


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (Place(), "before its first call of `fit` or the like"),
        (Place(call=2), "after its call 2 of `fit` or the like"),
        (Place(call=1, kind=1), "in `fit`"),
        (Place(call=1, kind=1, epoch=1), "at the begin of epoch 1 of `fit`"),
        (Place(call=1, kind=1, epoch=1, step=3), "in step 3 of epoch 1 of `fit`"),
        (Place(call=1, kind=2, total=4), "in batch 4 of `evaluate`"),
        (Place(call=1, kind=3), "in `predict`"),
    ],
)
def test_said(place, said):
    assert describe_place(place) == said


@pytest.mark.parametrize(
    ("used_mib", "free_mib", "is_short"), [(10240, 1024, False), (10240, 1023, True), (0, 1, False), (5, 100, False)]
)
def test_memory(used_mib, free_mib, is_short):
    assert ("`micro_batch`" in describe_memory(Place(used_mib=used_mib, free_mib=free_mib))) is is_short


def test_memory_that_nobody_knows():
    assert describe_memory(Place(used_mib=10)) == ""

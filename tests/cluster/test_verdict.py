import pytest

from tests.cluster.reading import read_pass
from tfscale.cluster.passes import LabelsSeen, PassesRead
from tfscale.cluster.place import Place
from tfscale.cluster.verdict import (
    CALL,
    DATA,
    ENDED,
    GONE,
    LABELS,
    MODEL,
    SILENT,
    STEPS,
    UNREACHABLE,
    WHYS,
    Verdict,
    describe_verdict,
    judge_doors,
    judge_labels,
    judge_passes,
    judge_places,
    judge_silence,
    judge_stuck,
    read_verdict,
    verdict_to_wire,
)

# This worker: in step 2 of epoch 3, ten batches in each epoch.
OWN = Place(call=1, kind=1, epoch=3, step=2, total=22, ended_epochs=2, ended_total=20, model=5)
TOTALS = {1: 10, 2: 20}


def fit(**changed):
    return Place(**{**vars(OWN), **changed})


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (OWN, None),
        (Place(), None),
        # Late: at an epoch's end, in the step before, not yet in this call.
        (fit(epoch=2, step=10, total=20, ended_epochs=1, ended_total=10), None),
        (fit(step=1, total=21), None),
        # Early: it has heard the last step's end first. What this worker has not yet ended is not compared.
        (fit(step=3, total=23), None),
        (fit(epoch=4, step=1, total=31, ended_epochs=3, ended_total=30), None),
        (fit(model=0), None),
        # Another count, also of an epoch before the last, with what follows from it.
        (fit(ended_total=18, total=20), STEPS),
        (fit(ended_epochs=1, ended_total=9, epoch=2, step=5, total=14), STEPS),
        (fit(ended_total=21, total=23), STEPS),
        (fit(model=6), MODEL),
        (fit(kind=2), CALL),
        # Through with this call, after as many batches as this worker has begun, and after fewer.
        (Place(call=1, total=22, ended_epochs=2, ended_total=20), None),
        (Place(call=1, total=21, ended_epochs=2, ended_total=20), ENDED),
        (Place(call=2, kind=2, total=1, last_total=22), None),
        (Place(call=2, kind=2, total=1, last_total=21), ENDED),
        (Place(call=3, kind=2, last_total=1), None),
    ],
)
def test_places(other, why):
    found = judge_places(0, OWN, TOTALS, {1: other})
    assert found == (None if why is None else Verdict(1, why, other, OWN))


def _passes(batches, ends):
    passes = PassesRead()
    read_pass(passes, passes.add_data(), batches, ends=ends)
    return passes


@pytest.mark.parametrize(
    ("batches", "ends", "theirs", "rank"),
    [
        # It may still come to the same end, or has.
        (3, False, 3, None),
        (2, False, 3, None),
        (3, True, 3, None),
        # This worker has more, and then the other one.
        (4, False, 3, 1),
        (4, True, 3, 1),
        (3, True, 4, 0),
        (0, True, 4, 0),
    ],
)
def test_whose_data_end_earlier(batches, ends, theirs, rank):
    other = fit(data=1, data_pass=1, data_batches=theirs)
    found = judge_passes(0, OWN, _passes(batches, ends), {2: fit(), 1: other})
    if rank is None:
        assert found is None
        return
    assert found is not None
    assert (found.rank, found.why) == (rank, DATA)
    assert f"after {min(batches, theirs)} batches, and others have more, in step 2 of epoch 3 of `fit`" in (
        describe_verdict(found, "a:1")
    )


def test_another_pass_or_none_is_not_compared():
    for other in (fit(), fit(data=1, data_pass=2, data_batches=1), fit(data=2, data_pass=1, data_batches=1)):
        assert judge_passes(0, OWN, _passes(3, ends=True), {1: other}) is None


def test_in_a_loop_nobody_is_told_of_calls():
    found = judge_passes(0, Place(), _passes(3, ends=True), {1: Place(data=1, data_pass=1, data_batches=2)})
    assert found is not None
    assert "after 2 batches, and others have more. Give" in describe_verdict(found, "a:1")


def test_whose_labels_are_others():
    passes, sums = PassesRead(), (1.0,) * 9
    passes.note_labels(LabelsSeen(1, 1, 4, sums))
    told = {2: LabelsSeen(1, 1, 4, sums), 1: LabelsSeen(1, 1, 4, (9.0,) * 9), 3: LabelsSeen()}
    found = judge_labels(OWN, passes, told)
    assert found is not None
    assert (found.rank, found.why, found.place.data) == (1, LABELS, 1)
    assert "(a:1) has other labels than another worker in the first 4 batch(es)" in describe_verdict(found, "a:1")
    del told[1]
    assert judge_labels(OWN, passes, told) is None


def test_outside_of_a_call_nobody_is_judged():
    assert judge_places(0, Place(call=1, total=30), TOTALS, {1: fit(ended_total=1)}) is None


def test_most_are_right():
    odd = fit(ended_total=18)
    assert judge_places(0, OWN, TOTALS, {1: OWN, 2: odd, 3: OWN}) == Verdict(2, STEPS, odd, OWN)
    assert judge_places(0, OWN, TOTALS, {1: odd, 2: odd, 3: OWN}) == Verdict(0, STEPS, OWN, odd)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (OWN, None),
        (fit(step=1), CALL),
        (fit(epoch=2), CALL),
        (Place(call=1), ENDED),
        (Place(call=2, kind=2), ENDED),
        (fit(kind=2), CALL),
    ],
)
def test_stuck(other, why):
    assert judge_stuck(OWN, {1: other}) == (None if why is None else Verdict(1, why, other, OWN))


def test_doors():
    places = {2: fit(step=1)}
    assert judge_doors({}, places, OWN) is None
    # One that is gone is certain; those that do not answer may be cut off by the same fault.
    assert judge_doors({1: UNREACHABLE, 3: GONE, 2: GONE}, places, OWN) == Verdict(2, GONE, places[2], OWN)
    assert judge_doors({3: UNREACHABLE}, places, OWN) == Verdict(3, UNREACHABLE, Place(), OWN)


@pytest.mark.parametrize(
    ("place", "own", "why"),
    [
        # Its script has come to its end, after fewer epochs; this one begins its next and has no batch yet.
        (Place(call=1, total=20), fit(step=0, total=20), ENDED),
        (Place(call=1, total=20), fit(), ENDED),
        (Place(call=2, kind=2, last_total=20), fit(), ENDED),
        # In the same call as this one, before it, or where this one is in none.
        (fit(), fit(), GONE),
        (Place(), fit(), GONE),
        (Place(call=1), fit(call=2), GONE),
        (Place(call=1), Place(call=1), GONE),
    ],
)
def test_who_has_left_well_has_ended_its_call(place, own, why):
    assert judge_doors({1: GONE}, {1: place}, own) == Verdict(1, why, place, own)
    # That its host does not answer is no end of its own.
    assert judge_doors({1: UNREACHABLE}, {1: place}, own) == Verdict(1, UNREACHABLE, place, own)


def test_another_number_of_epochs_is_named():
    said = describe_verdict(Verdict(1, ENDED, Place(call=1, total=20), fit(step=0, total=20)), "10.0.0.7:2222")
    assert "has ended its call after 20 batches, and others go on, at the begin of epoch 3 of `fit`." in said
    assert "That is so too for `epochs`, `stop_training` and whatever ends a loop." in said


def test_silence():
    places = {1: OWN, 2: fit(step=1)}
    assert judge_silence({1: 11.9, 2: 12.0}, 12.0, places) is None
    assert judge_silence({1: 12.5, 2: 13.7}, 12.0, places) == Verdict(2, SILENT, places[2], seconds=13)
    # Of whom nothing was ever heard, such as through a wall that lets no datagram pass, nothing is said.
    assert judge_silence({3: 1000.0}, 12.0, places) is None


@pytest.mark.parametrize("verdict", [None, *(Verdict(1, why, OWN, fit(step=9), 12) for why in WHYS)])
def test_there_and_back(verdict):
    assert read_verdict(verdict_to_wire(verdict), 2) == verdict


@pytest.mark.parametrize(
    ("index", "value"),
    [
        (0, 2),
        (0, -1),
        (0, "1"),
        (0, True),
        (1, len(WHYS)),
        (1, None),
        (2, []),
        (3, [1]),
        (4, -1),
        (4, 1 << 31),
        (4, 0.5),
    ],
)
def test_malformed(index, value):
    numbers = verdict_to_wire(Verdict(1, GONE, OWN, OWN, 3))
    numbers[index] = value
    with pytest.raises(ValueError, match=r"within their limits|counts"):
        read_verdict(numbers, 2)


@pytest.mark.parametrize("numbers", [None, [0], {}, "x", 1])
def test_no_verdict(numbers):
    with pytest.raises(ValueError, match="A verdict is"):
        read_verdict(numbers, 2)


@pytest.mark.parametrize("why", WHYS)
def test_said(why):
    said = describe_verdict(Verdict(1, why, fit(used_mib=9000, free_mib=10), OWN, 12), "10.0.0.7:2222")
    assert said.startswith("worker 1 (10.0.0.7:2222) ")
    ways = (
        "Start all workers again",
        "Give all workers the same data, model and script",
        "Give all of the data to every",
    )
    assert any(way in said for way in ways)
    assert said.endswith(".")
    assert "  " not in said
    assert len(said) < 1000

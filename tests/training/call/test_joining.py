"""When calls of one step become calls of several, where nobody can tell: by clocks that are told, and in `fit`."""

import keras
import pytest

import tfscale
from tests.processes import run_workers
from tests.training.together import Failure, run_together
from tfscale.training.call.batch_readers import any_reads_batches, reads_batches
from tfscale.training.call.joining import pays_to_join, steps_to_come
from tfscale.training.call.steps_per_call import StepsPerCall

CASES = "tests.training.call.cases_steps_per_call"


@pytest.mark.parametrize(
    ("host_s", "num_steps", "first_call_s", "expected"),
    [
        (0.001, 0, 0.1, False),
        (0.0, 10**9, 0.1, False),
        (0.001, 449, 0.1, False),
        (0.001, 451, 0.1, True),
        (0.001, 20_000, 5.0, False),
        (0.001, 30_000, 5.0, True),
        (0.001, 1, 0.0, True),
    ],
)
def test_pays(host_s, num_steps, first_call_s, expected):
    assert pays_to_join(host_s, num_steps, first_call_s) is expected


@pytest.mark.parametrize(
    ("done", "num_steps", "passes_after", "earlier", "expected"),
    [(0, 1, 0, 0, 1), (1, 1, 0, 0, 0), (10, 100, 3, 7, 397), (10, None, 0, 0, 10), (10, None, 2, 5, 55)],
)
def test_steps_to_come(done, num_steps, passes_after, earlier, expected):
    assert steps_to_come(done, num_steps, passes_after=passes_after, earlier=earlier) == expected


class Machine:
    """Epochs by a clock of its own: the first call takes `first_s`, and so does the first of several steps."""

    HOST_S, STEP_S = 0.0005, 0.0002

    def __init__(self, first_s, num_passes=1, agree=None, may_join=True):
        self.now_s = self.host_now_s = 0.0
        self.first_s = first_s
        self.sizes = set()
        self.chosen = StepsPerCall(
            agree,
            lambda: self.now_s,
            lambda: self.host_now_s,
            begins_alone=True,
            num_passes=num_passes,
            may_join=may_join,
        )

    def epoch(self, num_steps):
        counts = []
        for begin, end, _ in self.chosen.calls(((step, step, None) for step in range(num_steps)), num_steps):
            count = end - begin + 1
            is_first = (count > 1) not in self.sizes
            self.sizes.add(count > 1)
            self.now_s += self.first_s * is_first + self.HOST_S + count * self.STEP_S
            self.host_now_s += self.HOST_S
            counts.append(count)
        assert sum(counts) == num_steps
        return counts


def test_a_long_fit_is_joined_and_a_short_one_is_not():
    assert max(Machine(0.4).epoch(20_000)) > 1
    assert max(Machine(0.4).epoch(1_000)) == 1
    # As many steps, of a model whose trace takes long.
    assert max(Machine(20.0).epoch(20_000)) == 1


def test_epochs_that_are_to_come_count():
    assert max(Machine(0.4, num_passes=20).epoch(1_000)) > 1
    evaluations = Machine(0.4)
    assert max(evaluations.epoch(1_000)) == 1
    # As many as there were are expected again.
    assert max(max(evaluations.epoch(1_000)) for _ in range(6)) > 1


def test_the_trace_is_not_taken_for_a_long_step():
    counts = Machine(0.4).epoch(60_000)
    assert max(counts) >= 100
    assert counts[:4] == [1, 1, 1, 1]


def test_a_worker_that_may_not_join_asks_at_the_same_calls():
    asked = [[], []]
    machines = [Machine(0.4, agree=lambda number, own=own: asked[own].append(number) or 0) for own in (0, 1)]
    machines[1] = Machine(0.4, agree=lambda number: asked[1].append(number) or 0, may_join=False)
    for machine in machines:
        assert max(machine.epoch(5_000)) == 1
    assert len(asked[0]) == len(asked[1]) > 2
    assert max(asked[0]) == 1 > max(asked[1])


class Own(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        del batch, logs


class Alias(keras.callbacks.Callback):
    def on_batch_begin(self, batch, logs=None):
        del batch, logs


class OfTests(keras.callbacks.Callback):
    def on_test_batch_begin(self, batch, logs=None):
        del batch, logs


class Safe(Own):
    several_steps_safe = True


class UnsafeAgain(Safe):
    def on_train_batch_end(self, batch, logs=None):
        del batch, logs


class OwnCheckpoint(keras.callbacks.ModelCheckpoint):
    def on_train_batch_end(self, batch, logs=None):
        del batch, logs


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (keras.callbacks.History, False),
        (keras.callbacks.ProgbarLogger, False),
        (keras.callbacks.EarlyStopping, False),
        (lambda: keras.callbacks.LearningRateScheduler(lambda epoch: 0.1), False),
        (keras.callbacks.ReduceLROnPlateau, False),
        (lambda: keras.callbacks.CSVLogger("a.csv"), False),
        (keras.callbacks.TerminateOnNaN, True),
        (lambda: keras.callbacks.ModelCheckpoint("a.keras"), False),
        (lambda: keras.callbacks.ModelCheckpoint("a.keras", save_freq=5), True),
        (lambda: OwnCheckpoint("a.keras"), True),
        (lambda: keras.callbacks.BackupAndRestore("a"), False),
        (lambda: keras.callbacks.BackupAndRestore("a", save_freq=5), True),
        (lambda: keras.callbacks.TensorBoard("a"), False),
        (lambda: keras.callbacks.TensorBoard("a", update_freq="batch"), True),
        (lambda: keras.callbacks.TensorBoard("a", update_freq=10), True),
        (lambda: keras.callbacks.TensorBoard("a", profile_batch=(2, 4)), True),
        (lambda: keras.callbacks.LambdaCallback(on_epoch_end=print), False),
        (lambda: keras.callbacks.LambdaCallback(on_train_batch_end=print), True),
        (lambda: keras.callbacks.LambdaCallback(on_batch_end=print), True),
        (Own, True),
        (Alias, True),
        (Safe, False),
        (UnsafeAgain, True),
        (OfTests, False),
        (tfscale.callbacks.NoiseScale, False),
    ],
)
def test_who_reads_batches(make, expected):
    callback = make()
    assert reads_batches(callback, "fit") is expected
    assert any_reads_batches([keras.callbacks.History(), [callback]], "fit") is expected
    assert reads_batches(callback, "evaluate") is (
        isinstance(callback, OfTests) or (expected and hasattr(callback, "update_freq"))
    )


def test_a_list_of_ones_own_may_do_anything():
    class OwnList(keras.callbacks.CallbackList):
        pass

    assert any_reads_batches(OwnList([]), "fit")
    assert not any_reads_batches(keras.callbacks.CallbackList([]), "fit")
    assert not any_reads_batches(None, "fit")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    (result,) = run_together([(f"{CASES}:unasked", (2, str(tmp_path_factory.mktemp("run"))))]).values()
    assert not isinstance(result, Failure), result
    return result


def test_a_long_fit_takes_fewer_calls_and_says_so(found):
    assert found["nobody reads"]["calls"] < found["num_steps"] / 3
    assert "Steps per call of" in found["nobody reads"]["said"]
    assert found["nobody reads"]["weights"] == pytest.approx(found["off"]["weights"], rel=1e-5)
    assert found["nobody reads"]["loss"] == pytest.approx(found["off"]["loss"], rel=1e-5)
    assert found["nobody reads"]["iterations"] == found["off"]["iterations"] == found["num_steps"]


def test_the_callbacks_of_a_run_leave_it_joined(found):
    assert found["dp.callbacks"]["calls"] < found["num_steps"] / 3


@pytest.mark.parametrize("what", ["off", "one", "reads batches", "own step", "own fit", "eager", "short"])
def test_one_step_a_call(found, what):
    assert found[what]["calls"] == found[what]["steps"]
    assert "Steps per call" not in found[what]["said"]


def test_compile_goes_before(found):
    assert found["compiled with 4"]["calls"] == found["compiled with 4"]["steps"] / 4


def test_what_cannot_be_traced_as_several_is_run_one_by_one(found):
    assert found["cannot"]["iterations"] == found["num_steps"]
    assert found["cannot"]["weights"] == pytest.approx(found["off"]["weights"], rel=1e-5)
    assert found["cannot"]["calls"] > found["num_steps"] / 2


@pytest.mark.parametrize(("num_steps", "asks"), [(200, False), (600, True)])
def test_workers_ask_each_other_only_where_it_may_pay(num_steps, asks):
    asked = []

    def agree(number):
        asked.append(number)
        return number

    chosen = StepsPerCall(agree, begins_alone=True)
    calls = list(chosen.calls(iter([(step, step, None) for step in range(num_steps)]), num_steps))
    assert calls[-1][1] == num_steps - 1
    assert bool(asked) == asks


def test_workers_do_alike():
    first, second = run_workers(f"{CASES}:unasked_on_workers", num_workers=2)
    assert first["nobody reads"] == second["nobody reads"] > 1
    assert first["the chief reads"] == second["the chief reads"] == 1

"""What `ScalingReport` leaves for `tfscale report`: `run.jsonl`."""

import json
import math

import tensorflow as tf

from tests.training.callbacks.test_scaling_report import report_of_run
from tfscale.replicas.deterministic import what_bits_depend_on
from tfscale.training.callbacks.run_record import RunRecord


def lines_of(directory):
    return [json.loads(line) for line in (directory / "run.jsonl").read_text().splitlines()]


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


def test_where_the_time_went(tmp_path):
    clock = Clock()
    record = RunRecord(tmp_path / "new", {"replicas": 2}, lambda: "told", clock=clock, now=lambda: 5.0)
    record.begin()
    record.begin_epoch(0, 0)
    for took_s in (10.0, 1.0, 1.0):
        record.begin_call()
        clock.now_s += took_s
        record.end_call()
    clock.now_s += 0.5
    record.begin_test()
    clock.now_s += 2.0
    record.end_test()
    record.end_epoch(0, 3, {"loss": 1.5, "val_loss": math.nan, "what": "no number"})
    record.begin_epoch(1, 3)
    record.begin_call()
    clock.now_s += 1.0
    record.end_call()
    record.end_epoch(1, 4, None)
    record.end()
    start, first, second, end = lines_of(tmp_path / "new")
    assert start == {"kind": "start", "at": 5.0, "epoch": 0, "step": 0, "replicas": 2, "derived": "told"}
    assert first["logs"] == {"loss": 1.5, "val_loss": None}
    times = ("total_s", "first_call_s", "train_s", "validation_s")
    assert [first[name] for name in times] == [14.5, 10.0, 2.0, 2.0]
    assert [second[name] for name in times] == [1.0, 0.0, 1.0, 0.0]
    assert end == {"kind": "end", "at": 5.0}


def test_the_link_as_it_was_measured(tmp_path):
    record, link = RunRecord(tmp_path, {}, None), {"bytes_per_s": 1e8, "latency_s": 0.001, "processor_s_per_byte": 0.0}
    record.begin(link=link)
    record.begin_epoch(0, 0)
    # Where none is, nothing is said.
    record.begin()
    record.begin_epoch(1, 3)
    first, second = lines_of(tmp_path)
    assert first["link"] == link
    assert "link" not in second


def test_what_steps_wait_for_is_told_apart(tmp_path):
    waited_s = 100.0
    record = RunRecord(tmp_path, {}, None, clock=Clock())
    record.begin(input_s=lambda: waited_s)
    record.begin_epoch(0, 0)
    for epoch in range(2):
        for each_s in (7.0, 1.5, 1.5):
            record.begin_call()
            waited_s += each_s
            record.end_call()
        record.end_epoch(epoch, 3, None, sending_s=0.5 if epoch else None)
        # Validation, say, is not of this epoch nor the next.
        waited_s += 9.0
        record.begin_epoch(epoch + 1, 3)
    _, first, second = lines_of(tmp_path)
    # What the first call has waited is part of its own time.
    assert first["input_s"] == 3.0
    assert "sending_s" not in first
    assert (second["input_s"], second["sending_s"]) == (10.0, 0.5)


def test_a_run_that_goes_on_adds_to_it_and_a_new_one_does_not(tmp_path):
    for step, kinds in ((0, ["start"]), (7, ["start", "start"]), (0, ["start"])):
        record = RunRecord(tmp_path, {}, None)
        record.begin()
        record.begin_epoch(0, step)
        assert [line["kind"] for line in lines_of(tmp_path)] == kinds


def test_what_cannot_be_written_is_said_and_ends_no_training(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    record = RunRecord(tmp_path / "file", {}, None)
    record.begin_epoch(0, 0)
    assert "run.jsonl could not be written" in caplog.text


def test_a_fit_leaves_one(tmp_path):
    report_of_run(directory=tmp_path, describe=lambda: "a table", fit={"validation_split": 0.5})
    start, *epochs, end = lines_of(tmp_path)
    assert (start["kind"], start["step"], start["derived"], start["batch_ratio"]) == ("start", 0, "a table", 4.0)
    assert start["bits"] == {"deterministic": False, **what_bits_depend_on(tf.distribute.get_strategy())}
    assert start["bits"]["tensorflow"] == tf.__version__
    assert [sorted(each["logs"]) for each in epochs] == [["loss", "val_loss"]] * 2
    assert end["kind"] == "end"
    for each in epochs:
        assert 0 < each["train_s"] + each["first_call_s"] + each["validation_s"] <= each["total_s"]

"""`tfscale report`: what is on the page comes from the files; what cannot be read is said."""

import json
import re

import pytest

from tfscale import ReportError, cli
from tfscale.reporting.page import time_parts
from tfscale.reporting.reading import read_run

BITS = {"deterministic": True, "tensorflow": "2.21.0", "devices": "a <GPU>"}
START = {"kind": "start", "at": 1e9, "replicas": 4, "global_batch": 64, "derived": "rate <0.1>", "bits": BITS}
EPOCH = {
    "kind": "epoch",
    "logs": {"loss": 1.5, "val_loss": None},
    "first_call_s": 0.0,
    "train_s": 2.0,
    "validation_s": 1.0,
}
LINES = [
    {**START, "epoch": 0, "step": 0},
    {**EPOCH, "epoch": 0, "step": 5, "total_s": 10.0, "first_call_s": 4.0},
    {**EPOCH, "epoch": 1, "step": 10, "total_s": 99.0},
    {**START, "epoch": 1, "step": 7, "replicas": 2, "bits": {**BITS, "tensorflow": "2.22.0"}},
    {**EPOCH, "epoch": 1, "step": 10, "total_s": 3.0, "logs": {"loss": 0.5}},
]


@pytest.fixture
def directory(tmp_path):
    text = "\n".join(map(json.dumps, LINES)) + '\n{"kind": "epo'
    (tmp_path / "run.jsonl").write_text(text)
    (tmp_path / "scaling.csv").write_text(
        "epoch,steps,learning_rate,examples_per_s,step_time_s\n0,5,0.1,,0.5\n1,10,0.1,9,0.5\n"
    )
    return tmp_path


def test_facts(directory, capsys):
    assert cli.main(["report", str(directory), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["recoveries"], facts["has_ended"], facts["epochs"], facts["last_logs"]) == (
        1,
        False,
        2,
        {"loss": 0.5},
    )
    # The second epoch was made again: its last time counts.
    assert list(facts["time_s"].values()) == [4.0, 4.0, 2.0, 3.0]
    assert time_parts(read_run(directory)) == facts["time_s"]


def test_what_steps_wait_for_is_told_apart(tmp_path):
    waits = [{"input_s": 0.5, "sending_s": 0.25}, {"input_s": 1.0, "sending_s": 5.0}]
    lines = [{**EPOCH, "epoch": number, "step": 5, "total_s": 4.0, **each} for number, each in enumerate(waits)]
    (tmp_path / "run.jsonl").write_text("\n".join(map(json.dumps, [{**START, "epoch": 0, "step": 0}, *lines])))
    parts = time_parts(read_run(tmp_path))
    assert parts["other steps: waiting for input"] == 1.5
    # What is reckoned from the link is never more than what is left.
    assert parts["other steps: summing gradients, at most"] == 2.5
    assert parts["other steps: the rest"] == 0.0
    assert cli.main(["report", str(tmp_path)]) == 0
    assert "reckoned from the link" in (tmp_path / "report.html").read_text()


def test_input_alone_is_told_where_no_link_was_measured(tmp_path):
    lines = [{**START, "epoch": 0, "step": 0}, {**EPOCH, "epoch": 0, "step": 5, "total_s": 4.0, "input_s": 0.5}]
    (tmp_path / "run.jsonl").write_text("\n".join(map(json.dumps, lines)))
    parts = time_parts(read_run(tmp_path))
    assert (parts["other steps: waiting for input"], parts["other steps: the rest"]) == (0.5, 1.5)
    assert cli.main(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "too slow shows here" in page
    assert "reckoned" not in page


def test_page_needs_nothing_else_and_shows_text_as_text(directory):
    assert cli.main(["report", str(directory)]) == 0
    page = (directory / "report.html").read_text()
    assert "rate &lt;0.1&gt;" in page
    assert re.findall(r"(?:src|href)=|<script|url\(|https?:", page) == []
    assert page.count("<svg") == 5
    assert "1 recovery, has not come to its end" in page
    assert "deterministic True, tensorflow 2.21.0, devices a &lt;GPU&gt;" in page
    assert "tensorflow 2.22.0" in page


def test_damage_is_said(directory, capsys):
    (directory / "noise.csv").write_text("a,b\n1,2\n")
    (directory / "noise.json").write_text("[1]")
    (directory / "run.jsonl").write_text("what\n" + json.dumps(LINES[0]) + "\n")
    assert cli.main(["report", str(directory), "--output", str(directory / "x.html")]) == 1
    told = capsys.readouterr().err
    assert [name for name in ("noise.csv: ", "noise.json: ", "run.jsonl: line 1") if name not in told] == []
    assert "Could not be read" in (directory / "x.html").read_text()


def test_nothing_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ReportError, match="Received: "):
            read_run(path)


def test_logs_of_keras_stand_in(tmp_path):
    (tmp_path / "log.csv").write_text("epoch,loss,val_loss\n0,1.0,2.0\n1,nan,1.0\n")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    assert cli.main(["report", str(tmp_path)]) == 0
    assert "loss (log.csv)" in (tmp_path / "report.html").read_text()
    assert list(read_run(tmp_path).logs) == ["log.csv"]


def test_rate_momentum_and_batch_have_their_curves(tmp_path):
    (tmp_path / "scaling.csv").write_text(
        "epoch,steps,learning_rate,momentum,global_batch,examples_per_s,step_time_s\n"
        "0,5,0.1,0.9,64,9,0.5\n1,10,0.1,0.81,64,9,0.5\n"
    )
    assert cli.main(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    assert [name for name in ("Learning rate", "Momentum", "Global batch") if f"<figcaption>{name}<" not in page] == []


@pytest.mark.parametrize(
    ("interval", "told"),
    [
        ([38.7, None], "about 51.1 examples, from 38.7 up, with no upper end yet."),
        ([166.0, 2141.7], "about 51.1 examples, from 166 to 2,140."),
        (None, "about 51.1 examples. Up to"),
    ],
)
def test_noise_is_told_with_what_is_known_of_it(tmp_path, interval, told):
    (tmp_path / "run.jsonl").write_text("\n".join(map(json.dumps, LINES)))
    (tmp_path / "noise.json").write_text(json.dumps({"noise_scale": 51.1, "interval": interval}))
    assert cli.main(["report", str(tmp_path)]) == 0
    assert told in (tmp_path / "report.html").read_text()

"""`tfscale plan --noise`: what it answers, and what it refuses."""

import json
import subprocess
import sys

import pytest

from tfscale import cli
from tfscale.measure import StepMoments, TraceRow, format_trace
from tfscale.study import Trial, TrialResult
from tfscale.study.result import write_csv, write_result

TIMES = {"8": 0.014, "16": 0.018, "32": 0.026, "64": 0.042}
TOLD = {"model": "a", "parameters": 10**6, "optimizer": "SGD", "replicas": 1, "steps_measured": 200, "device": "CPU"}


def write(folder, name="noise", *, noise=400.0, batch=32.0, rows=200, **told):
    steps = [StepMoments(noise * (1 + 0.1 * (-1) ** i), 1.0, batch, 4) for i in range(rows)]
    path = folder / f"{name}.csv"
    trace = [TraceRow(i + 1, batch * (i + 1), each, 1 / (i + 1), 0.03 * i) for i, each in enumerate(steps)]
    path.write_text(format_trace(trace))
    path.with_suffix(".json").write_text(json.dumps({**TOLD, "step_times": TIMES, **told}))
    return str(path)


def run(capsys, *argv):
    status = cli.main(["plan", *argv])
    out, err = capsys.readouterr()
    return status, out, err


LINK = ["--replicas", "1,2,4,8", "--link", "25gbit", "--latency", "50us"]


def test_json_has_all_of_it(tmp_path, capsys):
    status, out, _ = run(capsys, "--noise", write(tmp_path), *LINK, "--price-per-hour", "2.5", "--json")
    found = json.loads(out)
    assert status == 0
    assert found["critical_batch"]["value"] is None  # never a number from noise alone
    assert found["critical_batch"]["low"] < 101
    assert found["critical_batch"]["high"] > 1599
    assert found["run"] == {"steps": 200, "batch": 32.0, "gradient_bytes": 4 * 10**6}
    assert {(row["num_replicas"], row["per_replica_batch"]) for row in found["rows"]} == {
        *((number, 32) for number in (1, 2, 4, 8)),
        *((number, 32 // number) for number in (1, 2, 4, 8)),
    }
    assert [row["link"] for row in found["network"]["links"]] == [
        "25gbit (given)", "1gbit", "10gbit", "25gbit", "100gbit", "nvlink",
    ]  # fmt: skip
    row = found["rows"][-1]
    assert row["cost"]["low"] == pytest.approx(8 * 2.5 / 3600 * row["total_s"]["low"])
    assert any("assumed" in each for each in found["assumptions"])


def test_a_link_that_a_run_has_measured(tmp_path, capsys):
    link = '{"kind": "start", "link": {"bytes_per_s": 1.5e8, "latency_s": 0.0005, "processor_s_per_byte": 2e-9}}'
    (tmp_path / "run.jsonl").write_text(link)
    given = ["--noise", write(tmp_path), "--replicas", "1,2,4", "--link", str(tmp_path)]
    measured = f"Link of {tmp_path}, 150 MB/s, latency {{}} us: measured, a ring; 2 ms/MB of the processor's time."
    assert measured.format(500) in run(capsys, *given)[1]
    assert measured.format(90) in run(capsys, *given, "--latency", "90us")[1]


def test_the_text_begins_with_the_advice(tmp_path, capsys):
    status, out, _ = run(capsys, "--noise", write(tmp_path), *LINK)
    assert status == 0
    first, _, *rest = out.splitlines()
    assert first.startswith("Take ")
    assert rest[0].startswith("Critical batch between ")
    assert sum(line.endswith("<- take this") for line in rest) == 1
    assert any(line.startswith("Is the network fast enough? With ") for line in rest)


def test_it_loads_no_tensorflow(tmp_path):
    argv = ["plan", "--noise", write(tmp_path), *LINK]
    code = f"import sys; from tfscale.cli import main; main({argv!r}); sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False).returncode == 0


def write_study(folder, critical, models=()):
    (folder / "trials").mkdir()
    for place, model in enumerate(models):
        write_result(folder / "trials", TrialResult(Trial(16, place, 0), 9.0, "reached", model=model))
    rows = [TrialResult(Trial(b, 0, 0, {"rate": 0.1}), 10 * (1 + critical / b), "reached") for b in (16, 64, 256)]
    write_csv(folder / "study.csv", rows)
    goal = {"metric": "loss", "value": 0.1, "is_least": True}
    (folder / "study.json").write_text(json.dumps({"experiment": {"goal": goal}}))
    return str(folder)


def test_a_study_takes_the_place_of_the_band(tmp_path, capsys):
    more = ["--study", write_study(tmp_path, 100), "--json"]
    status, out, _ = run(capsys, "--noise", write(tmp_path), *LINK, *more)
    found = json.loads(out)
    assert status == 0
    assert found["critical_batch"]["value"] == pytest.approx(100, rel=0.01)
    assert found["critical_batch"]["note"] == "a study to loss <= 0.1"
    # The steps are those to the study's target, at the trace's batch.
    assert found["run"]["steps"] == pytest.approx(10 * (1 + 100 / 32), rel=0.01)
    assert found["rows"][0]["steps"]["value"] == pytest.approx(found["run"]["steps"])


def test_what_was_said_of_the_measuring_is_a_caution(tmp_path, capsys):
    told = {"approximate": ["micro-steps differ in size"], "clipped_share": 0.35, "examples_per_epoch": 300}
    path = write(tmp_path, **told)
    cautions = json.loads(run(capsys, "--noise", path, *LINK, "--json")[1])["cautions"]
    assert cautions == [
        "the noise is measured approximately: micro-steps differ in size",
        "clipping bites in 35 % of the steps: where it does, a rate that grows by a rule goes too far",
        "the noise scale is more than the 300 examples of an epoch: of such batches nothing can be told",
    ]
    out = run(capsys, "--noise", path, *LINK)[1]
    assert [f"Caution: {each}." for each in cautions] == [line for line in out.splitlines() if "aution" in line]
    fine = write(tmp_path, "fine", approximate=[], clipped_share=0.2, examples_per_epoch=None)
    assert "aution" not in run(capsys, "--noise", fine, *LINK)[1]
    # Of another source than noise its own approximations say nothing, and a study has cautions of its own.
    study = ["--study", write_study(tmp_path, 100), "--json"]
    cautions = json.loads(run(capsys, "--noise", path, *LINK, *study)[1])["cautions"]
    assert [each[:17] for each in cautions] == ["1 trials a batch:", "clipping bites in"]
    given = json.loads(run(capsys, "--noise", path, *LINK, "--critical-batch", "301", "--json")[1])["cautions"]
    assert given[1].startswith("the critical batch is more than the 300 examples")


OWN = {"parameters": 10**6, "weights": "0a", "optimizer": "SGD", "momentum": 0.9}


@pytest.mark.parametrize(
    ("models", "refused"),
    [
        ([OWN, {}], None),
        # A study that varies it: whichever the trace has.
        ([OWN | {"momentum": 0.5}, OWN | {"momentum": 0.8}], None),
        ([OWN | {"optimizer": "AdamW"}], "optimizer 'SGD' in"),
        ([OWN | {"momentum": 0.0}, OWN | {"momentum": 0.0}], "momentum '0.9' in"),
        ([OWN | {"weights": "0b"}], "weights '0a' in"),
        ([OWN | {"parameters": 7}, {}], "parameters '1000000' in"),
    ],
)
def test_a_study_of_another_model_is_refused(models, refused, tmp_path, capsys):
    path = write(tmp_path, weights="0a", momentum=0.9)
    status, out, err = run(capsys, "--noise", path, *LINK, "--study", write_study(tmp_path, 100, models))
    assert status == (0 if refused is None else 2), err
    if refused is not None:
        assert out == ""
        assert f"must be of the trace's model and optimizer.\nReceived: {refused} " in err
        assert "in the study " in err


def test_one_replica_needs_no_link_and_no_size(tmp_path, capsys):
    path = write(tmp_path)
    (tmp_path / "noise.json").unlink()
    status, out, _ = run(capsys, "--noise", path, "--replicas", "1")
    assert status == 0
    assert "Is the network" not in out
    assert "of the runs themselves" in out
    assert "there is a band; 4 would tell" in out


def test_two_traces_give_two_step_times(tmp_path, capsys):
    paths = [write(tmp_path, "a", step_times={}), write(tmp_path, "b", batch=64.0, step_times={})]
    status, out, _ = run(capsys, "--noise", paths[0], "--noise", paths[1], *LINK)
    assert status == 0
    assert "at 2 batches" in out


@pytest.mark.parametrize(("other", "refused"), [("sequential_1", False), ("sequential_12", False), ("mlp", True)])
def test_models_are_compared_without_the_counter_of_keras(other, refused, tmp_path, capsys):
    paths = [write(tmp_path, "a", model="sequential"), write(tmp_path, "b", model=other)]
    status, _, err = run(capsys, "--noise", paths[0], "--noise", paths[1], *LINK)
    assert status == (2 if refused else 0), err


def test_a_trace_with_nothing_beside_it_is_said_to_be_of_any_model(tmp_path, capsys):
    paths = [write(tmp_path, "a"), write(tmp_path, "b")]
    study = write_study(tmp_path, 100)
    more = ["--noise", paths[0], "--noise", paths[1], *LINK, "--json"]
    assert "same model" not in run(capsys, *more)[1]
    (tmp_path / "b.json").unlink()
    told = json.loads(run(capsys, *more)[1])["assumptions"]
    assert [f"nothing beside {paths[1]!r} tells whether it is of the same model" in each for each in told].count(
        True
    ) == 1
    (tmp_path / "a.json").unlink()
    alone = ["--noise", paths[0], *LINK, "--parameters", "9", "--json"]
    assert "same model" not in run(capsys, *alone)[1]
    assert "tells whether it is of the same model" in run(capsys, *alone, "--study", study)[1]


DIGITS = ["tests/trials/digits.py:build", "tests/trials/digits.py:data"]
REFUSED = {
    "no such file": (["--noise", "{folder}/none.csv"], "A trace must be a file that can be read."),
    "no link": (["--noise", "{good}", "--replicas", "1,2"], "Give --link, such as --link 25gbit."),
    "bad link": (["--noise", "{good}", "--link", "fast"], "A link must be a rate"),
    "bad latency": (["--noise", "{good}", "--link", "1gbit", "--latency", "5"], "A time must be as 50us"),
    "replicas": (["--noise", "{good}", "--replicas", "1,x"], "`--replicas` must be positive integers"),
    "each": (["--noise", "{good}", *LINK, "--per-replica-batch", "0"], "`--per-replica-batch` must be positive"),
    "price": (["--noise", "{good}", *LINK, "--price-per-hour", "nan"], "A price must be a number"),
    "times": (["--noise", "{good}", *LINK, "--step-times", "16:fast"], "A time must be"),
    "times twice": (["--noise", "{good}", *LINK, "--step-times", "16:1ms,16:2ms"], "name each batch once"),
    "parameters": (["--noise", "{good}", *LINK, "--parameters", "0"], "`--parameters` must be a positive integer"),
    "steps": (["--noise", "{good}", *LINK, "--run-steps", "-3"], "`--run-steps` must be a positive integer"),
    "few": (["--noise", "{few}", *LINK], "A trace must have 20 measured steps or more.\nReceived: 10."),
    "empty": (["--noise", "{empty}", *LINK], "A trace must have measured steps."),
    "another model": (["--noise", "{good}", "--noise", "{other}", *LINK], "Received: parameters '1000000' in"),
    "another run beside": (["--noise", "{stolen}", *LINK], "must be of one run.\nReceived: 200 rows in"),
    "damaged beside": (["--noise", "{damaged}", *LINK], "must be as it was written."),
    "no size": (["--noise", "{alone}", *LINK], "Give --parameters."),
    "growing batch": (["--noise", "{growing}", *LINK], "A trace must be of one batch."),
    "no study": (["--noise", "{good}", *LINK, "--study", "{folder}/none"], "A study must be a table"),
    "not bracketed": (
        ["--noise", "{good}", *LINK, "--study", "{wide}"],
        "Go on with the study in its directory, with more",
    ),
    "unused": (["--noise", "{good}", "--optimizer", "adam", "--goal", "3"], "Received: --optimizer, --goal with --noi"),
    "no traces": (["--link", "1gbit", "--replicas", "2"], "Received: --link without measurements. Give --check with"),
    "micro-batch": (
        ["--noise", "{good}", *LINK, "--calibrate", *DIGITS, "--micro-batch", "8"],
        "Received: --calibrate with --micro-batch 8. Calibrate without it",
    ),
    "two sources": (["--noise", "{good}", *LINK, "--study", "{wide}", "--critical-batch", "9"], "from one place"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    found = {
        "folder": str(folder),
        "good": write(folder, "good"),
        "few": write(folder, "few", rows=10, steps_measured=9),
    }
    found["other"] = write(folder, "other", parameters=5)
    found["stolen"] = write(folder, "stolen", steps_measured=999)
    found["alone"] = write(folder, "alone", step_times={})
    (folder / "alone.json").unlink()
    found["empty"] = write(folder, "empty", rows=0)
    found["damaged"] = write(folder, "damaged", replicas=0)
    growing = [TraceRow(i + 1, 8.0 * i, StepMoments(9.0, 1.0, 8.0 + i, 4), None, 0.1 * i) for i in range(60)]
    (folder / "growing.csv").write_text(format_trace(growing))
    (folder / "wide").mkdir()
    return {**found, "growing": str(folder / "growing.csv"), "wide": write_study(folder / "wide", 5000)}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, files, capsys):
    argv, message = REFUSED[name]
    status, out, err = run(capsys, *(each.format(**files) for each in argv))
    assert (status, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "3", '{"replicas": "2"}', '{"step_times": {"a": 1}}', '{"step_times": {"8": "x"}}'),
        *('{"clipped_share": 2}', '{"approximate": "x"}', '{"examples_per_epoch": "9"}'),
        *('{"momentum": "0.9"}', '{"momentum": NaN}', '{"weights": 3}'),
    ],
)
def test_what_lies_beside_may_be_anything(text, tmp_path, capsys):
    path = write(tmp_path)
    (tmp_path / "noise.json").write_text(text)
    status, _, err = run(capsys, "--noise", path, *LINK)
    assert status == 2
    assert err.startswith("MeasureError: What lies beside a trace")

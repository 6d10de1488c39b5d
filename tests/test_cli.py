import json
import subprocess
import sys
import types

import pytest

from tests.repository import ROOT
from tfscale import ParityError, cli

VERIFY = ["verify", "train.py:build", "train.py:data"]


@pytest.fixture
def run(monkeypatch):
    """Puts a function in the place of `tfscale.parity.command.run`, and so keeps TensorFlow out."""

    def put(function):
        parity = types.ModuleType("tfscale.parity")
        parity.command = types.ModuleType("tfscale.parity.command")
        parity.command.run = function
        monkeypatch.setitem(sys.modules, "tfscale.parity", parity)
        monkeypatch.setitem(sys.modules, "tfscale.parity.command", parity.command)

    return put


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], {"replicas": None, "workers": None, "epochs": 1, "global_batch": None, "bitwise": False}),
        (["--bitwise", "--logical-replicas", "8"], {"bitwise": True, "logical_replicas": 8}),
        (["--replicas", "4"], {"replicas": (4,)}),
        (["--replicas", "2,1"], {"replicas": (2, 1)}),
        (["--workers", "2"], {"workers": 2}),
        (["--epochs", "3"], {"epochs": 3}),
        (["--global-batch", "64"], {"global_batch": 64}),
        (["--against", "keras"], {"against": "keras"}),
    ],
)
def test_verify_flags(argv, expected):
    args = vars(cli.make_parser().parse_args([*VERIFY, *argv]))
    assert {name: args[name] for name in expected} == expected


@pytest.mark.parametrize("target", ["train.py:build", "a.b.c:build", "C:/x/train.py:build"])
def test_verify_target(target):
    assert cli.make_parser().parse_args(["verify", target, "m:data"]).build == target


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["lunch"], "invalid choice: 'lunch'"),
        (["launch"], "are required: SCRIPT\n"),
        (["launch", "--wrkers", "2", "train.py"], "unrecognized arguments: --wrkers. Did you mean --workers?"),
        (["verify", "m:build", "m:data", "--replica-count", "2"], "unrecognized arguments: --replica-count"),
        (["--verbose", "doctor"], "unrecognized arguments: --verbose"),
        (["plan"], "For example: tfscale plan --examples 50000"),
        (["plan", "--examples", "9", "--replicas", "2"], "For example: tfscale plan --examples 50000"),
        (["launch", "--workers", "0", "train.py"], "must be a positive integer. Received: '0'"),
        (["launch", "--max-restarts=-1", "train.py"], "must be an integer of 0 or more. Received: '-1'"),
        (["launch", "--rank", "one", "train.py"], "must be an integer of 0 or more. Received: 'one'"),
        (["verify"], "BUILD, DATA"),
        (["verify", "train.py", "m:data"], "must be module:name or file.py:name"),
        (["verify", ":build", "m:data"], "must be module:name or file.py:name"),
        (["verify", "train.py:", "m:data"], "must be module:name or file.py:name"),
        (["verify", "m:build()", "m:data"], "must be module:name or file.py:name"),
        ([*VERIFY, "--replicas", ""], "must be a positive integer, such as 2. Received: ''"),
        ([*VERIFY, "--replicas", "1,"], "must be a positive integer, such as 2. Received: ''"),
        ([*VERIFY, "--replicas", "0"], "must be a positive integer, such as 2. Received: '0'"),
        ([*VERIFY, "--replicas", "2,2"], "must name each number once. Received: '2,2'"),
        ([*VERIFY, "--workers=-1"], "must be a positive integer, such as 2. Received: '-1'"),
        ([*VERIFY, "--epochs", "1.5"], "must be a positive integer, such as 2. Received: '1.5'"),
        ([*VERIFY, "--global-batch", "٣"], "must be a positive integer, such as 2. Received: '٣'"),
        ([*VERIFY, "--against", "jax"], "invalid choice: 'jax'"),
    ],
)
def test_bad_arguments(argv, shown, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(argv)
    assert exit_.value.code == 2
    assert shown in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["soon", "nan", "-1", "inf"])
def test_seconds_that_are_none(seconds, capsys):
    assert cli.main(["doctor", f"--timeout-s={seconds}"]) == 2
    err = capsys.readouterr().err
    assert "must be a number of seconds, or 0" in err
    assert f"Received: timeout_s={seconds!r}. Leave it out" in err


@pytest.mark.parametrize("seconds", ["0", "0.5", "30"])
def test_seconds(seconds):
    assert float(cli.make_parser().parse_args(["doctor", "--timeout-s", seconds]).timeout_s) == float(seconds)


@pytest.mark.parametrize("status", [0, 1])
def test_status_is_that_of_the_command(run, status):
    run(lambda args: status)
    assert cli.main(VERIFY) == status


def test_refusal_is_one_message(run, capsys):
    def refuse(args):
        raise ParityError("`replicas` must be few.\nReceived: replicas=9. Ask for fewer.")

    run(refuse)
    assert cli.main(VERIFY) == 2
    assert capsys.readouterr() == (
        "",
        "ParityError: `replicas` must be few.\nReceived: replicas=9. Ask for fewer. See docs/errors.md#parityerror.\n",
    )


def test_refusal_is_an_object_where_json_was_asked_for(run, capsys):
    def refuse(args):
        raise ParityError("`replicas` must be few.\nReceived: replicas=9. Ask for fewer.")

    run(refuse)
    assert cli.main([*VERIFY, "--json"]) == 2
    out, err = capsys.readouterr()
    error = json.loads(out)["error"]
    assert (error["kind"], f"ParityError: {error['message']}\n") == ("ParityError", err)


def test_a_flag_before_its_command_is_said_to_stand_behind_it(capsys):
    with pytest.raises(SystemExit) as ending:
        cli.main(["--json", "doctor"])
    out, err = capsys.readouterr()
    said = "--json stands behind the command: `tfscale doctor --json`"
    assert (ending.value.code, json.loads(out)["error"]["message"]) == (2, said)
    assert said in err


def test_a_reader_that_has_enough_ends_a_command_without_a_word():
    process = subprocess.Popen(
        [sys.executable, "-m", "tfscale"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.close()
    with process.stderr as err:
        assert err.read() == ""
    assert process.wait(timeout=60) == 141


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["measure", "none.py:build", "none.py:data"], "there is no file"),
        (["study", f"{__file__}:build", "none.py:data", "--target", "loss=1", "--batches", "8,16"], "there is no file"),
        (
            ["study", f"{__file__}:build", f"{__file__}:data", "--target", "loss", "--batches", "8,16"],
            "A target must be",
        ),
        (
            ["study", f"{__file__}:build", f"{__file__}:data", "--target", "loss=1", "--batches", "8-16"],
            "Batches must be",
        ),
        (["sweep", "none.py:objective", "--space", "none.json"], "there is no file"),
    ],
)
def test_what_can_be_refused_without_tensorflow_is(argv, shown, tmp_path):
    directory = ["--directory", str(tmp_path)] if argv[0] != "measure" else []
    program = f"""
import sys
from tfscale import cli
status = cli.main({[*argv, *directory]!r})
assert status == 2 and "tensorflow" not in sys.modules, (status, "tensorflow" in sys.modules)
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert shown in ended.stderr


def test_mistake_of_ours_keeps_its_traceback(run):
    def fail(args):
        raise KeyError("ours")

    run(fail)
    with pytest.raises(KeyError, match="ours"):
        cli.main(VERIFY)


def test_module_is_the_command():
    command = [sys.executable, "-m", "tfscale", "--version"]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert output.startswith("tfscale ")


@pytest.mark.parametrize(("given", "meant"), [("lanch", "launch"), ("verfy", "verify"), ("reports", "report")])
def test_a_command_that_is_nearly_one(given, meant, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main([given])
    assert f"invalid choice: '{given}'" in (said := capsys.readouterr().err)
    assert said.rstrip().endswith(f"Did you mean {meant}?")


def test_a_command_that_is_like_none(capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["frobnicate"])
    assert "Did you mean" not in capsys.readouterr().err

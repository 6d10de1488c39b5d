"""Command lines of any kind, in this process: each answers, or is refused in few words, within a second."""

import gc
import io
import json
import time
from contextlib import redirect_stderr, redirect_stdout
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfscale import TfscaleError, cli
from tfscale.cluster.deadline import read_timeout_s
from tfscale.scaling.optimizer_table import OPTIMIZERS
from tfscale.scaling.rules import RULE_NAMES

MAX_CHARACTERS = 2000
# A parser writes how the command is used before what is wrong, and names the program.
MAX_SHOWN = MAX_CHARACTERS + 2000
MAX_S = 1.0
COUNTS = ["1", "2", "3", "7", "8", "64", "100", "256", "1797", "50000", "1281167"]
RATES = ["0.1", "0.9", "0.999", "1e-3", "1e-7", "0.5", "3", "90"]
ODD = ["0", "-1", "-0", "1_0", "1e3", "1e308", "1e-320", "5e-324", "1e400", "nan", "inf", "auto", "", " 1", "\u0663"]
ODD += ["1" + "0" * 15, "1" + "0" * 16, "9" * 400, "9" * 5000, "\x1b[2J", "\udcff", "x" * 10_000, "--", "-m"]
HOSTS = ["a,b", "n[1-3]", "a:1,b:2", "[::1]:3,[::1]:4", "n[0-999999999]", "a" * 300, "\x1b[2J", "localhost,localhost"]
SCRIPT = __file__


@pytest.fixture(autouse=True, scope="module")
def others_are_not_looked_through():
    """What other files have left in this process is no work of a command: Python would look through it for garbage."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def run(argv):
    """Returns exit status, what was answered, and what was complained of."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    began_s = time.process_time()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = cli.main(argv)
        except SystemExit as ending:
            status = ending.code
    assert time.process_time() - began_s < MAX_S, argv
    out.flush()
    return status, out.buffer.getvalue().decode(errors="replace"), err.getvalue()


def plan(random):
    def count():
        return random.choice(COUNTS if random.random() < 0.9 else ODD)

    def rate():
        return random.choice(RATES if random.random() < 0.8 else ODD)

    argv = ["plan", "--examples", count(), "--replicas", count(), "--optimizer", random.choice([*OPTIMIZERS]).lower()]
    argv += [random.choice(["--per-replica-batch", "--global-batch"]), count()]
    some = ["reference-batch", "micro-batch", "ema-overwrite-frequency", "decay-steps", "warmup-steps"]
    argv += [each for name in some if random.random() < 0.2 for each in (f"--{name}", count())]
    some = [
        "learning-rate",
        "momentum",
        "beta-1",
        "beta-2",
        "rho",
        "epsilon",
        "weight-decay",
        "epochs",
        "warmup-epochs",
        "critical-batch",
        "clipped-share",
    ]
    argv += [each for name in some if random.random() < 0.2 for each in (f"--{name}", rate())]
    argv += ["--rule", random.choice([*RULE_NAMES, *ODD[:3]])] if random.random() < 0.3 else []
    argv += ["--adam-beta-1", random.choice(["keep", "memory", *ODD[:3]])] if random.random() < 0.3 else []
    return argv + [flag for flag in ("--json", "--batch-norm") if random.random() < 0.3]


def launch(random):
    def count():
        return random.choice(["1", "2", "3"] if random.random() < 0.8 else [*ODD, "100", "1001", "1000000"])

    argv = ["launch", "--dry-run"]
    some = ["workers", "rank", "replicas-per-worker", "cores-per-worker", "max-restarts"]
    argv += [each for name in some if random.random() < 0.25 for each in (f"--{name}", count())]
    argv += ["--hosts", random.choice([*HOSTS, *ODD])] if random.random() < 0.2 else []
    argv += [flag for flag in ("--isolate-network", "-m", "--no-such-flag") if random.random() < 0.1]
    argv += [SCRIPT if random.random() < 0.8 else random.choice(["json.tool", *ODD])]
    return argv + [random.choice(ODD) for _ in range(random.choice([0, 0, 2]))]


def others(random):
    start = random.choice([["doctor", "--timeout-s"], ["verify"], ["verify", "a.py:b", "--epochs"], [], ["plan"]])
    # One thing at least that neither of them takes, so that nothing is run.
    return [*start, *(random.choice(ODD) for _ in range(random.randrange(4))), "--no-such-flag", random.choice(ODD)]


def check(argv):
    status, out, err = run(argv)
    assert status in (0, 2), argv
    assert len(err) <= MAX_SHOWN, argv
    assert ("Traceback" in err, bool(err)) == (False, status == 2), argv
    if status == 2:
        assert not out or ("--json" in argv and set(json.loads(out)) == {"error"}), argv
        assert out or "--json" not in argv or argv[0] == "launch", argv
        assert any(word in err for word in ("Error: ", "error: ")), argv


# Hypothesis draws where to start; drawing every word through it takes minutes.
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_any_command_line_answers_or_is_refused(seed):
    random = Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        # No GPU is looked for.
        patch.setenv("CUDA_VISIBLE_DEVICES", "-1")
        for _ in range(10):
            for kind in (plan, launch, others):
                check(kind(random))


def test_many_are_valid():
    # What is drawn must not be refused at the door only.
    random = Random(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "-1")
        for kind in (plan, launch):
            assert [run(kind(random))[0] for _ in range(100)].count(0) > 5


BASE = ["plan", "--examples", "50000", "--per-replica-batch", "64", "--replicas", "8"]


@pytest.mark.parametrize("flag", ["--examples", "--per-replica-batch", "--replicas", "--decay-steps", "--micro-batch"])
@pytest.mark.parametrize("digits", [17, 400, 5000])
def test_numbers_of_many_digits(flag, digits):
    status, out, err = run([*BASE, flag, "9" * digits])
    assert (status, out) == (2, "")
    assert f"argument {flag}: must be a positive integer, at most 1e+15. Received: '9999" in err
    assert len(err) < MAX_SHOWN


@pytest.mark.parametrize("flag", ["--learning-rate", "--epochs", "--warmup-epochs", "--epsilon"])
def test_numbers_that_are_no_numbers_for_long(flag):
    for text in ("9" * 300, "1e308"):
        assert "must be a number, 0 or more, at most 1e+15. Received: " in run([*BASE, flag, text])[2]
    for text in ("9" * 400, "inf", "nan", "-1", "x" * 5000):
        assert "must be a number, 0 or more. Received: " in run([*BASE, flag, text])[2]


def test_as_many_replicas_as_there_may_be():
    status, out, _ = run([*BASE[:5], "--replicas", "1" + "0" * 15, "--json"])
    assert (status, '"smallest_share": 64' in out) == (0, True)


def test_seconds_that_are_none():
    for wrong in (10**400, 10**9000, -(10**400), float("nan"), "9" * 400, True, "\x1b"):
        with pytest.raises(TfscaleError, match="must be a number of seconds") as caught:
            read_timeout_s(wrong, {})
        assert len(str(caught.value)) < MAX_CHARACTERS


@pytest.mark.parametrize(
    "argv",
    [("verify", "a.py:b", "c.py:d", "--epochs", "nine"), ("launch", "--workers", "two", "a.py"), ("doctor", "-x")],
)
def test_arguments_that_are_refused_are_an_object_too(argv):
    status, out, err = run([argv[0], "--json", *argv[1:]])
    assert status == 2
    assert json.loads(out)["error"]["kind"] == "ArgumentError"
    assert json.loads(out)["error"]["message"] in err

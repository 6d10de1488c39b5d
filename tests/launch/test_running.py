"""Real workers, a few lines of Python each: what the user sees of them, and how they end."""

import json
import os
import re
import signal
import time

import pytest

from tests.repository import ROOT

DEAF = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", deaf])
(here / f"started-child-{rank}").write_text(str(child.pid))
started()
"""
FAIL_ON_RANK_1 = """
started()
if rank == 1:
    wait_for("started-0*")
    print("why it failed")
    sys.exit(3)
time.sleep(600)
"""


def test_output_bears_the_rank(launcher):
    code = "print(rank, len(workers), sys.argv[1:]); print('no end of line', end='', file=sys.stderr)"
    status, out, err = launcher.run(code, "--workers", "2", args=["--flag", "a b", "--workers", "9"])
    assert (status, err) == (0, "")
    assert sorted(out.splitlines()) == sorted(
        line
        for rank in (0, 1)
        for line in (f"[{rank}] {rank} 2 ['--flag', 'a b', '--workers', '9']", f"[{rank}] no end of line")
    )


def test_first_failure_is_what_the_user_sees(launcher, tmp_path):
    # The others fail too, once they notice: not the first.
    code = FAIL_ON_RANK_1.replace("time.sleep(600)", "signal.signal(15, lambda *_: sys.exit(5)); time.sleep(600)")
    status, out, err = launcher.run(code, "--workers", "3", "--log-dir", str(tmp_path / "logs" / "a"))
    assert status == 3
    assert "[1] why it failed\n" in out
    assert re.fullmatch(
        r"tfscale launch: worker 1 \(127\.0\.0\.1:\d+\) failed first, with exit status 3; the others were stopped\. "
        r"Its last lines:\n    why it failed\n",
        err,
    )
    assert (tmp_path / "logs" / "a" / "worker-1.log").read_text() == "why it failed\n"
    assert launcher.left() == []


BLAME = """
from tfscale.cluster.peer_failure import describe_peer_failure
started()
if rank == 0:
    wait_for("started-1*")
    sys.exit(describe_peer_failure(1, "ValueError: the cause"))
"""


@pytest.mark.parametrize(
    ("other", "failed", "status"),
    [
        # Told of the failure, rank 0 was gone before rank 1 had written its own error.
        ("time.sleep(0.5); print('the cause'); sys.exit(6)", 1, 6),
        # Which it never does: those that are left are stopped none the less.
        ("signal.signal(15, signal.SIG_IGN); time.sleep(600)", 0, 1),
        ("time.sleep(600)", 0, 1),
    ],
)
def test_worker_that_another_one_blames_is_waited_for(launcher, other, failed, status):
    process = launcher.start(BLAME + other, "--workers", "2", env={"PYTHONPATH": str(ROOT)})
    launcher.wait_for("started-1*")
    failed_s = time.monotonic()
    _, err = process.communicate(timeout=30)
    assert process.returncode == status
    assert f"worker {failed} (" in err
    assert "the cause" in err
    assert time.monotonic() - failed_s < 5
    assert launcher.left(within_s=0.5) == []


def test_worker_that_left_is_named(launcher):
    # `sys.exit(0)` in a callback: nothing has failed there, and the others cannot go on.
    code = """
from tfscale.cluster.peer_failure import describe_peer_failure
if rank == 1:
    print("bye")
    started()
    sys.exit(0)
wait_for("started-1*")
time.sleep(1.0)
sys.exit(describe_peer_failure(1, "SystemExit: 0", "127.0.0.1:1", "in step 2 of epoch 1 of `fit`"))
"""
    status, _, err = launcher.run(code, "--workers", "2", env={"PYTHONPATH": str(ROOT)})
    assert status == 1
    assert re.fullmatch(
        r"tfscale launch: worker 1 \(127\.0\.0\.1:\d+\) left first, with exit status 0, while others needed it and "
        r"failed with 1; the others were stopped\. Its last lines:\n    bye\n",
        err,
    )


def test_memory_of_a_worker_that_was_killed(launcher):
    code = "held = bytearray(300 << 20)\nos.kill(os.getpid(), signal.SIGKILL)"
    status, _, err = launcher.run(code)
    assert status == 137
    found = re.search(
        r"with signal SIGKILL; the others were stopped\. It had (\d\.\d) GiB of memory at most\. The ", err
    )
    assert found is not None, err
    assert 0.3 <= float(found[1]) < 0.6


def test_last_lines_only(launcher):
    _, out, err = launcher.run("for i in range(99): print(f'line {i}')\nraise SystemExit(1)")
    assert len(out.splitlines()) == 99
    assert re.findall(r"    line (\d+)", err) == [str(number) for number in range(79, 99)]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, 137), (signal.SIGSEGV, 139)])
def test_worker_ended_by_a_signal(launcher, number, status):
    found, _, err = launcher.run(f"os.kill(os.getpid(), {int(number)})", "--workers", "2")
    assert found == status
    assert f"with signal {number.name}; the others were stopped. " in err
    assert err.endswith(" It printed nothing.\n")


def test_deaf_worker_is_gone_within_5_s(launcher):
    code = DEAF + "if rank == 1:\n    wait_for('started-0*'); sys.exit(4)\ntime.sleep(600)"
    process = launcher.start(code, "--workers", "2")
    launcher.wait_for("started-0*")
    launcher.wait_for("started-1*")
    failed_s = time.monotonic()
    process.communicate(timeout=30)
    assert process.returncode == 4
    assert time.monotonic() - failed_s < 5
    assert launcher.left(within_s=0.5) == []


def test_worker_that_ends_well_waits_for_nobody(launcher):
    status, out, _ = launcher.run("if rank: time.sleep(0.3)\nprint('end')", "--workers", "2")
    assert (status, out) == (0, "[0] end\n[1] end\n")


def test_restart_takes_all_workers_and_new_ports(launcher, tmp_path):
    code = """
name = f"workers-{rank}-{time.monotonic_ns()}"
(here / f"partial-{name}").write_text(json.dumps(workers))
# Whole, or not there: a worker that is ended in the meantime leaves no half of it.
(here / f"partial-{name}").rename(here / name)
if rank == 0 and len(list(here.glob("workers-0*"))) < 3:
    wait_for("workers-1*")
    sys.exit(7)
print("attempt")
"""
    status, out, err = launcher.run(code, "--workers", "2", "--max-restarts", "2", "--log-dir", str(tmp_path))
    assert status == 0
    assert "restart 1 of 2.\n" in err
    assert "restart 2 of 2.\n" in err
    attempts = {path.read_text() for path in tmp_path.glob("workers-*")}
    addresses = [address for attempt in attempts for address in json.loads(attempt)]
    assert len(attempts) == 3
    assert len(set(addresses)) == 6
    assert "[0] attempt\n" in out
    assert (tmp_path / "worker-0.log").read_text() == "attempt\n"


def test_restarts_come_to_an_end(launcher, tmp_path):
    flags = ["--workers", "2", "--max-restarts", "1", "--log-dir", str(tmp_path)]
    (tmp_path / "worker-1.log").write_text("of another run")
    status, _, err = launcher.run(FAIL_ON_RANK_1, *flags)
    assert status == 3
    assert err.count("failed first") == 2
    assert err.count("restart ") == 1
    # Both attempts, and not the run before.
    assert (tmp_path / "worker-1.log").read_text() == "why it failed\n" * 2


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signal_leaves_nothing_behind(launcher, number, status):
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip(f"{number.name} is ignored by whoever started the tests, as `nohup` does, and so by the launcher")
    process = launcher.start("started(); time.sleep(600)", "--workers", "2", "--max-restarts", "3")
    launcher.wait_for("started-0*")
    launcher.wait_for("started-1*")
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == status
    assert f"stopped by {number.name}" in err
    assert launcher.left(within_s=0.5) == []


def test_signal_is_passed_on(launcher):
    # Longer than a worker has whose peer failed.
    save = "lambda *_: (time.sleep(3.5), print('saved'), sys.exit(0))"
    code = f"signal.signal(signal.SIGTERM, {save}); started(); time.sleep(600)"
    process = launcher.start(code)
    launcher.wait_for("started-0*")
    process.terminate()
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (143, "[0] saved\n")


def test_second_ctrl_c_waits_for_nobody(launcher):
    process = launcher.start(DEAF + "time.sleep(600)", "--workers", "2")
    launcher.wait_for("started-0*")
    launcher.wait_for("started-1*")
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    second_s = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert time.monotonic() - second_s < 2
    assert launcher.left(within_s=0.5) == []


def test_killed_launcher_leaves_nothing_behind(launcher):
    process = launcher.start(DEAF + "time.sleep(600)", "--workers", "2", start_new_session=True)
    launcher.wait_for("started-0*")
    launcher.wait_for("started-1*")
    # All of the launcher's own process group, as a terminal or a manager may do.
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    assert launcher.left() == []


def test_reader_that_leaves_ends_the_workers(launcher):
    process = launcher.start("started()\nwhile True: print('line'); time.sleep(0.01)", "--workers", "2")
    assert process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (141, "")
    assert launcher.left(within_s=0.5) == []


def test_what_a_worker_leaves_behind_ends_with_it(launcher):
    status, *_ = launcher.run(DEAF, "--workers", "2")
    assert status == 0
    assert launcher.left(within_s=0.5) == []


def test_process_in_a_session_of_its_own_does_not_hold_the_launcher(launcher):
    code = """
child = subprocess.Popen([sys.executable, "-c", "while True: print('more')"], start_new_session=True)
(here / "started-child").write_text(str(child.pid))
"""
    status, *_ = launcher.run(code)
    assert status == 0
    # It left its worker's group, and is beyond reach: only a pipe without a reader ends this one.
    assert launcher.left() == []


def test_environment(launcher):
    code = """
names = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "CUDA_VISIBLE_DEVICES")
print(*(os.environ.get(name) for name in names), len(os.sched_getaffinity(0)), os.getsid(0) == os.getpid())
"""
    env = {"CUDA_VISIBLE_DEVICES": "4,5,6", "OMP_NUM_THREADS": "9"}
    _, out, _ = launcher.run(code, "--workers", "2", "--cores-per-worker", "1", env=env)
    assert sorted(out.splitlines()) == ["[0] 9 1 2 4 1 True", "[1] 9 1 2 5 1 True"]
    _, out, _ = launcher.run(code, env=env)
    assert out == f"[0] 9 None None 4,5,6 {len(os.sched_getaffinity(0))} True\n"

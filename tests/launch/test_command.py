"""Where workers come from: this machine, a list of hosts, or a job that this process is a worker of already."""

import functools
import json
import os
import pty
import re
import resource
import shlex
import socket
import subprocess
import sys

import pytest

from tests.processor_time import AT_ONCE, in_starts_of_python
from tests.repository import ROOT
from tfscale import resolve_cluster

SHOW = "print(json.dumps([os.environ['TF_CONFIG'], sys.argv[1:], os.getppid()]))"
TF_CONFIG = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}'
STEP = {
    "SLURM_STEP_NODELIST": "n[08-09]",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_NTASKS": "2",
    "SLURM_PROCID": "1",
    "TFSCALE_PORT": "2222",
}
SKYPILOT = {"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2", "SKYPILOT_NODE_RANK": "1", "SKYPILOT_NUM_NODES": "2"}


def specs(shown):
    """The clusters of the commands that a dry run printed."""
    lines = [line for line in shown.splitlines() if not line.startswith("#")]
    environs = [
        dict(word.split("=", 1) for word in shlex.split(line) if word.startswith("TF_CONFIG=")) for line in lines
    ]
    return [resolve_cluster(environ) for environ in environs]


def test_dry_run_starts_nothing(launcher, tmp_path):
    flags = ["--workers", "3", "--dry-run", "--log-dir", str(tmp_path / "logs")]
    status, out, err = launcher.run("started()", *flags, args=["a b"])
    assert (status, err) == (0, "")
    assert [(spec.rank, spec.num_workers) for spec in specs(out)] == [(0, 3), (1, 3), (2, 3)]
    assert out.count(" 'a b'\n") == 3
    assert not list(tmp_path.glob("started*"))
    assert not (tmp_path / "logs").exists()


SHOW_SECRET = "print(os.environ['TFSCALE_SECRET'])"


def test_workers_share_a_secret_of_their_own(launcher):
    runs = [launcher.run(SHOW_SECRET, "--workers", "2") for _ in range(2)]
    secrets = [{line.partition("] ")[2] for line in out.splitlines()} for _, out, _ in runs]
    assert [len(each) for each in secrets] == [1, 1]
    assert secrets[0] != secrets[1]
    assert all(len(secret) == 64 for each in secrets for secret in each)


def test_secret_that_is_given_stays(launcher):
    given = {"TFSCALE_SECRET": "correct horse battery"}
    status, out, _ = launcher.run(SHOW_SECRET, "--workers", "2", env=given)
    assert (status, sorted(out.splitlines())) == (0, [f"[{rank}] correct horse battery" for rank in range(2)])


@pytest.mark.parametrize("env", [{}, {"TFSCALE_SECRET": "correct horse battery"}])
def test_dry_run_shows_no_secret(launcher, env):
    _, out, err = launcher.run("", "--workers", "2", "--dry-run", env=env)
    assert "TF_CONFIG" in out
    assert [word for word in ("SECRET", "horse") if word in out + err] == []


def test_module(launcher):
    status, out, err = launcher.run("", "--dry-run", "-m", "json.tool", args=["--help"])
    assert (status, err) == (0, "")
    assert f"{sys.executable} -m json.tool " in out


def test_printed_command_runs(launcher):
    _, out, _ = launcher.run("print('rank', rank, sys.argv[1:])", "--workers", "2", "--dry-run", args=["$HOME 'x'"])
    printed = subprocess.run(out, shell=True, check=True, capture_output=True, text=True, timeout=60).stdout
    assert printed.splitlines() == ["rank 0 [\"$HOME 'x'\"]", "rank 1 [\"$HOME 'x'\"]"]


@pytest.mark.parametrize(
    ("flags", "ranks", "workers"),
    [
        (["--hosts", "HERE,b"], [0], ("HERE:2222", "b:2222")),
        (["--hosts", "b:7,HERE:7,HERE:8"], [1, 2], ("b:7", "HERE:7", "HERE:8")),
        (["--hosts", "n[01-02],127.0.0.1"], [2], ("n01:2222", "n02:2222", "127.0.0.1:2222")),
        (["--hosts", "x,y,z", "--rank", "1"], [1], ("x:2222", "y:2222", "z:2222")),
    ],
)
def test_hosts(launcher, flags, ranks, workers):
    here = socket.gethostname()
    flags = [flag.replace("HERE", here) for flag in flags]
    status, out, _ = launcher.run("", *flags, "--dry-run")
    assert status == 0
    assert [spec.rank for spec in specs(out)] == ranks
    assert {spec.workers for spec in specs(out)} == {tuple(worker.replace("HERE", here) for worker in workers)}


def test_two_launchers_with_one_rank_each_divide_their_host(launcher):
    flags = ["--hosts", "x,x", "--cores-per-worker", "1", "--dry-run", "--rank"]
    shown = [launcher.run("", *flags, rank, env={"CUDA_VISIBLE_DEVICES": "6,7"})[1] for rank in ("0", "1")]
    assert ["CUDA_VISIBLE_DEVICES=6 " in shown[0], "CUDA_VISIBLE_DEVICES=7 " in shown[1]] == [True, True]


@pytest.mark.parametrize("env", [SKYPILOT, {"SLURM_NNODES": "2"}, {"WORLD_SIZE": "2"}, {"LSB_HOSTS": "a b"}])
def test_all_hosts_by_hand_are_the_job(launcher, env):
    """What lends hosts has started one launcher on each of them, which is told all."""
    status, out, _ = launcher.run("print(workers)", "--hosts", "other:7\nlocalhost:7", env=env)
    assert (status, out) == (0, "[1] ['other:7', 'localhost:7']\n")


def test_evaluator_starts_nothing(launcher):
    task = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "evaluator", "index": 0}}'
    status, out, err = launcher.run("print(workers)", env={"TF_CONFIG": task})
    assert (status, out) == (0, "")
    assert "this is the job's evaluator; nothing to start" in err


def test_hosts_start_their_own_workers(launcher):
    _, out, _ = launcher.run("print(workers)", "--hosts", "other:7,localhost:7,localhost:8")
    assert sorted(out.splitlines()) == [f"[{rank}] ['other:7', 'localhost:7', 'localhost:8']" for rank in (1, 2)]


@pytest.mark.parametrize(
    ("env", "spec"),
    [
        ({"TF_CONFIG": TF_CONFIG}, (("a:1", "b:1"), 1)),
        (STEP, (("n08:2222", "n09:2222"), 1)),
        ({"PMI_RANK": "0", "PMI_SIZE": "2", "TFSCALE_HOSTS": "a:1,b:1"}, (("a:1", "b:1"), 0)),
        (SKYPILOT, (("10.0.0.1:2222", "10.0.0.2:2222"), 1)),
    ],
)
def test_worker_that_was_started_already_joins(launcher, env, spec):
    process = launcher.start(SHOW, args=["--x"], env=env)
    out, err = process.communicate(timeout=60)
    tf_config, arguments, parent = json.loads(out)
    found = resolve_cluster({"TF_CONFIG": tf_config})
    assert (found.workers, found.rank) == spec
    assert arguments == ["--x"]
    # The script took the launcher's place: signals and exit status are its own.
    assert parent == os.getpid()
    assert f"joins as worker {spec[1]} of 2 (from " in err
    assert specs(launcher.run(SHOW, "--dry-run", env=env)[1])[0] == found


@pytest.mark.parametrize(
    "env",
    [
        # A batch script of several tasks, and a step of one task with a shell in it.
        {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_JOB_NODELIST": "n1"},
        # The same, submitted from inside of another job's step of one task.
        {
            "SLURM_JOB_ID": "2",
            "SLURM_NTASKS": "4",
            "SLURM_PROCID": "0",
            "SLURM_STEP_ID": "0",
            "SLURM_STEP_NUM_TASKS": "1",
            "SLURM_STEP_NODELIST": "n1",
        },
        # Told to look at nothing of it; the workers are told by their launcher.
        {**STEP, "TFSCALE_ALONE": "1"},
        {**SKYPILOT, "TFSCALE_ALONE": "1"},
        {
            **STEP,
            "SLURM_NTASKS": "1",
            "SLURM_PROCID": "0",
            "SLURM_STEP_NODELIST": "n1",
            "SLURM_STEP_TASKS_PER_NODE": "1",
        },
    ],
)
def test_one_process_of_a_manager_starts_workers(launcher, env):
    status, out, _ = launcher.run("print(len(workers))", "--workers", "2", env=env)
    assert (status, sorted(out.splitlines())) == (0, ["[0] 2", "[1] 2"])


@pytest.mark.parametrize(
    ("flags", "env", "shown"),
    [
        (["--workers", "2"], {"TF_CONFIG": "{}"}, "ClusterError: `TF_CONFIG` must have an object under 'cluster'"),
        (["--workers", "3"], {"TF_CONFIG": TF_CONFIG}, "Received: --workers. Leave them out"),
        (["--max-restarts", "1", "--log-dir", "x"], STEP, "Received: --max-restarts, --log-dir. Leave them out"),
        (["--hosts", "a,b"], STEP, "2 worker(s) from Slurm.\nReceived: --hosts."),
        (["--workers", "8"], SKYPILOT, "2 worker(s) from SkyPilot.\nReceived: --workers."),
        # Every host or process of these would start workers of its own.
        (["--workers", "2"], {"SLURM_NNODES": "2"}, "several hosts must be started with `srun`"),
        ([], {"LSB_HOSTS": "a b"}, "LSF has given this job 2 hosts"),
        (["--workers", "2"], {"WORLD_SIZE": "2", "RANK": "0"}, "torchrun says that this is one of several"),
        ([], {"SLURM_STEP_ID": "0"}, "missing: SLURM_PROCID"),
        (["--hosts", "a:1,b:1"], {}, "--hosts must list this host"),
        (["--hosts", "a:1,a:1", "--rank", "0"], {}, "an address of its own"),
        (["--hosts", "a,b", "--rank", "2"], {}, "`rank` must be an integer from 0 to 1"),
        (["--hosts", "a[", "--rank", "0"], {}, "`--hosts` must be a list of hosts"),
        (["--hosts", "a,b", "--workers", "2"], {}, "Received: --workers 2 too."),
        (["--hosts", "a,b", "--isolate-network"], {}, "Received: --isolate-network too."),
        (["--rank", "0"], {}, "--rank must come with --hosts"),
        ([], {"TFSCALE_SECRET": "hunter2"}, "`TFSCALE_SECRET` must have 16 characters or more"),
        (["--workers", "3"], {"CUDA_VISIBLE_DEVICES": "0,1"}, "3 workers and 2 GPU(s)"),
        (["--cores-per-worker", "100000"], {}, "must fit on its"),
        (["--replicas-per-worker", "3"], {"CUDA_VISIBLE_DEVICES": "0,1"}, "must fit on its 2 GPU(s), 0,1"),
        (["--replicas-per-worker", "2"], STEP, "Received: --replicas-per-worker. Leave them out"),
        (["--log-dir", "/dev/null/x"], {}, "--log-dir must be a directory"),
        (["absent.py"], {}, "The script must be a file"),
        (["x" * 5000], {}, "xxx ... (File name too long). Name it after the launcher's flags"),
        (["-m", "x" * 5000], {}, "xxx ... (File name too long). Name it as for `python -m`"),
        (
            ["--workers", "1000000"],
            {},
            "The launcher starts 1000 workers on a machine at most.\nReceived: --workers 1000000",
        ),
        (
            ["-m", "no_such_module.at_all"],
            {},
            "The module must be one that Python finds.\nReceived: 'no_such_module.at_all'",
        ),
        (["-m", "train.py"], {}, "The module must be one that Python finds."),
    ],
)
def test_refusal(launcher, flags, env, shown):
    status, out, err = launcher.run("started()", *flags, env=env)
    assert (status, out) == (2, "")
    assert shown in err
    assert "Traceback" not in err


def test_limit_of_open_files_is_one_of_workers(launcher):
    limited = functools.partial(resource.setrlimit, resource.RLIMIT_NOFILE, (100, 100))
    process = launcher.start("started()", "--workers", "61", preexec_fn=limited)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert "The launcher starts 60 workers on a machine at most: it opens a file for each, and may open 100" in err


def test_workers_that_may_be_started_have_ports(launcher):
    # More than the files that this launcher may open at a time.
    limited = functools.partial(resource.setrlimit, resource.RLIMIT_NOFILE, (600, 600))
    process = launcher.start("", "--workers", "500", "--dry-run", preexec_fn=limited)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err, len(specs(out))) == (0, "", 500)


def test_dry_run_shows_the_bytes_of_a_name(tmp_path):
    script = os.fsencode(tmp_path) + b"/a\xff.py"
    with open(script, "wb"):
        pass
    command = [sys.executable, "-m", "tfscale", "launch", "--dry-run", script]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60)
    assert (ended.returncode, ended.stderr, script in ended.stdout) == (0, b"", True)


@pytest.mark.parametrize(
    "flags", [["--help"], ["--workers", "8", "--dry-run"], ["--rank", "0"], ["--workers", "1000000"]]
)
def test_answer_comes_at_once(launcher, flags):
    assert in_starts_of_python(lambda: launcher.run("", *flags)) < AT_ONCE


@pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colour_is_for_terminals(tmp_path, env, coloured):
    (tmp_path / "script.py").write_text("print('line')")
    environ = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    terminal, inside = pty.openpty()
    try:
        command = [sys.executable, "-m", "tfscale", "launch", str(tmp_path / "script.py")]
        subprocess.run(command, cwd=ROOT, stdout=inside, env={**environ, **env}, check=True, timeout=60)
        shown = os.read(terminal, 1000)
    finally:
        os.close(terminal)
        os.close(inside)
    assert shown == (b"\x1b[36m[0] \x1b[0mline\r\n" if coloured else b"[0] line\r\n")


def may_isolate():
    code = "from tfscale.launch.isolation import isolate_network; isolate_network()"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=60).returncode == 0


TALK = """
import socket
print("interfaces", [name for _, name in socket.if_nameindex()], "user", os.getuid())
host, port = workers[0].split(":")
if rank == 0:
    with socket.create_server((host, int(port))) as server:
        (here / "listens").touch()
        server.accept()[0].sendall(b"heard")
else:
    wait_for("listens")
    print(socket.create_connection((host, int(port))).recv(9).decode())
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=5)
except OSError as error:
    print(type(error).__name__)
"""


def test_isolated_workers_have_each_other_and_nobody_else(launcher):
    if not may_isolate():
        pytest.skip("this system does not let its users make network namespaces")
    with socket.create_server(("127.0.0.1", 0)) as outside:
        port = str(outside.getsockname()[1])
        status, out, err = launcher.run(TALK, "--workers", "2", "--isolate-network", args=[port])
    assert (status, err) == (0, "")
    alone = f"interfaces ['lo'] user {os.getuid()}"
    assert sorted(out.splitlines()) == sorted(
        [f"[0] {alone}", f"[1] {alone}", "[1] heard", "[0] ConnectionRefusedError", "[1] ConnectionRefusedError"]
    )


# Imported as whoever runs the tests, then as nobody: who is not root takes the way through a user namespace.
AS_NOBODY = """
import ctypes, encodings.idna, os, socket  # the codec is loaded late, and nobody may not read this Python
from tfscale.launch.isolation import isolate_network
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: who changed his user may not write to his own /proc otherwise
user = os.getuid(), os.getgid()
isolate_network()
assert (os.getuid(), os.getgid()) == user
with socket.create_server(("127.0.0.1", 0)) as server:
    socket.create_connection(server.getsockname()).close()
print(socket.if_nameindex())
"""


def test_isolation_without_being_root():
    command = [sys.executable, "-c", AS_NOBODY]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    if "--isolate-network needs" in ended.stderr:
        pytest.skip("this system does not let its users make network namespaces")
    assert (ended.stdout, ended.stderr) == ("[(1, 'lo')]\n", "")


def test_isolation_that_the_system_refuses(tmp_path):
    # As a system does whose users may not make namespaces.
    code = """
import ctypes, sys
from tfscale import cli
from tfscale.launch import isolation
def refuse(flags):
    raise PermissionError(1, "Operation not permitted")
isolation._unshare = refuse
sys.exit(cli.main(["launch", "--isolate-network", sys.argv[0]]))
"""
    (tmp_path / "script.py").write_text(code)
    command = [sys.executable, str(tmp_path / "script.py")]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert re.search(r"Received: \[Errno 1\] Operation not permitted\. Leave the flag out", ended.stderr)


def test_json_has_what_a_dry_run_tells(launcher):
    status, out, err = launcher.run("started()", "--workers", "2", "--dry-run", "--json", args=["a b"])
    assert (status, err) == (0, "")
    workers = json.loads(out)["workers"]
    assert [worker["rank"] for worker in workers] == [0, 1]
    for worker in workers:
        spec = resolve_cluster(worker["settings"])
        assert (spec.rank, spec.workers[spec.rank]) == (worker["rank"], worker["address"])
        assert worker["argv"][-1] == "a b"


def test_json_alone_is_on_standard_output(launcher):
    status, out, err = launcher.run("print('hello from', rank)", "--workers", "2", "--json")
    facts = json.loads(out)
    assert (status, facts["status"], facts["starts"], facts["failed"], facts["signal"]) == (0, 0, 1, None, None)
    assert [worker["rank"] for worker in facts["workers"]] == [0, 1]
    assert sorted(err.splitlines()) == ["[0] hello from 0", "[1] hello from 1"]


def test_json_has_the_worker_that_failed(launcher):
    code = "print('last words', rank)\nif rank == 1: sys.exit(7)\ntime.sleep(60)"
    status, out, err = launcher.run(code, "--workers", "2", "--max-restarts", "1", "--json")
    facts = json.loads(out)
    assert (status, facts["status"], facts["starts"]) == (7, 7, 2)
    failed = facts["failed"]
    assert (failed["rank"], failed["status"], failed["last_lines"]) == (1, 7, ["last words 1"])
    assert failed["address"] == facts["workers"][1]["address"]
    # The same facts as in words.
    assert "worker 1 (" in failed["told"]
    assert failed["told"] in err


def test_json_has_the_signal_that_ended_it(launcher):
    process = launcher.start("started()\ntime.sleep(60)", "--workers", "2", "--json")
    launcher.wait_for("started-*", 2)
    process.terminate()
    out, _ = process.communicate(timeout=60)
    facts = json.loads(out)
    assert (process.returncode, facts["status"], facts["signal"], facts["failed"]) == (143, 143, "SIGTERM", None)


def test_json_of_a_manifest(launcher):
    flags = ["--kubernetes", "--image", "i", "--workers", "2"]
    _, text, _ = launcher.run("", *flags)
    status, out, _ = launcher.run("", *flags, "--json")
    assert (status, json.loads(out)) == (0, {"manifest": text})


def test_json_is_for_who_starts_the_workers(launcher):
    status, out, err = launcher.run("", "--json", env={"TF_CONFIG": TF_CONFIG})
    assert (status, json.loads(out)["error"]["kind"]) == (2, "LaunchError")
    assert "Received: --json. Leave them out to join" in err
    status, out, _ = launcher.run("", "--json", "--dry-run", env={"TF_CONFIG": TF_CONFIG})
    assert (status, [worker["rank"] for worker in json.loads(out)["workers"]]) == (0, [1])


def test_flags_behind_the_script_that_were_meant_for_the_launcher(launcher):
    # One worker in place of two would train without a word.
    status, out, err = launcher.run("print(len(workers) if 'TF_CONFIG' in os.environ else 1)", args=["--workers", "2"])
    assert (status, out) == (0, "[0] 1\n")
    assert err == (
        "tfscale launch: --workers behind the script is the script's own; what is for the launcher stands before "
        "it: tfscale launch --workers 2 ... SCRIPT\n"
    )


@pytest.mark.parametrize(
    ("flags", "args"),
    [
        # Said before the script as well: it is the script's.
        (["--workers", "1"], ["--workers", "2"]),
        ([], ["--epochs", "2"]),
        ([], ["workers"]),
        # `--name` is for a manifest alone, and `--json` is what scripts have.
        ([], ["--name", "a", "--json"]),
    ],
)
def test_flags_behind_the_script_that_are_its_own(launcher, flags, args):
    assert launcher.run("", *flags, args=args) == (0, "", "")

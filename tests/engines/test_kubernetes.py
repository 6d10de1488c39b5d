"""No Kubernetes: two network namespaces that are pods of the Indexed Job that `tfscale launch --kubernetes` prints.

Each has the variables of the printed manifest and those that Kubernetes adds, a host name, and is the first process of
its container. What ends pods is done to them: SIGTERM and a time of grace, or SIGKILL.
"""

import pathlib
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest
import yaml

from tests.engines import jobs
from tests.engines.running import end, start, wait_until
from tfscale.launch.manifest import Manifest

BRIDGE = "tfpods"
PODS = range(2)
# The Job's name and its Service's.
NAME = "train"


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


def make_pods():
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("link", "set", BRIDGE, "up")
    names = "".join(f"10.78.0.{each + 1} {NAME}-{each} {NAME}-{each}.{NAME}\n" for each in PODS)
    for each in PODS:
        space = f"{BRIDGE}-{each}"
        ip("netns", "add", space)
        ip("link", "add", space, "type", "veth", "peer", "name", "eth0", "netns", space)
        ip("link", "set", space, "master", BRIDGE, "up")
        ip("-n", space, "addr", "add", f"10.78.0.{each + 1}/24", "dev", "eth0")
        ip("-n", space, "link", "set", "eth0", "up")
        ip("-n", space, "link", "set", "lo", "up")
        hosts = pathlib.Path("/etc/netns", space, "hosts")
        hosts.parent.mkdir(parents=True, exist_ok=True)
        hosts.write_text(f"127.0.0.1 localhost\n{names}")


def remove_pods():
    for each in PODS:
        space = f"{BRIDGE}-{each}"
        subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True, timeout=30)
        folder = pathlib.Path("/etc/netns", space)
        if folder.exists():
            (folder / "hosts").unlink(missing_ok=True)
            folder.rmdir()
    subprocess.run(["ip", "link", "del", BRIDGE], check=False, capture_output=True, timeout=30)


@pytest.fixture(scope="module")
def environ(needs):
    """What every container has by the manifest; the pods' networks are there meanwhile."""
    needs("pods")
    _, job = yaml.safe_load_all(Manifest(NAME, "a/b:1", ("python",), len(PODS)).as_indexed_job())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    try:
        make_pods()
        yield {each["name"]: each["value"] for each in container["env"] if "value" in each}
    finally:
        remove_pods()


def start_pod(environ, index, *argv):
    train = [sys.executable, "-m", "tests.engines.jobs", *argv]
    inside = ["unshare", "--uts", "--pid", "--fork", "--kill-child"]
    command = ["bash", "-c", 'hostname "$HOSTNAME"; exec "$@"', "bash", *train]
    added = {"JOB_COMPLETION_INDEX": str(index), "HOSTNAME": f"{NAME}-{index}"}
    return start(["ip", "netns", "exec", f"{BRIDGE}-{index}", *inside, *command], **environ, **added)


def tell(pod, number):
    """Sends a signal to the first process of a pod."""
    [first] = psutil.Process(pod.pid).children()
    first.send_signal(number)


def run_pods(environ, argv, happened, befalls):
    """Returns status and output of each pod, to one of which something happens once it is time."""
    pods = [start_pod(environ, index, *argv) for index in PODS]
    try:
        if happened is not None:
            wait_until(happened, pods[1])
            tell(pods[1], befalls)
        outputs = [pod.communicate(timeout=250)[0] for pod in pods]
    finally:
        for pod in pods:
            end(pod)
    return [pod.returncode for pod in pods], outputs


def test_an_evicted_pod_saves_with_the_others_and_the_job_goes_on(environ, tmp_path, undisturbed):
    argv = [str(tmp_path), "--recovery", "--every-steps", "1000"]

    def reached():
        return any(each["step"] == 3 for each in jobs.read_notes(tmp_path, "step"))

    # The time of grace is 60 s, and nothing ends before it has saved.
    statuses, outputs = run_pods(environ, [*argv, "--step-s", "0.5"], reached, signal.SIGTERM)
    assert statuses == [143, 143], outputs
    assert any("SIGTERM: saved in epoch" in output for output in outputs)
    begins = jobs.read_notes(tmp_path, "begins")
    assert {(each["pid"], each["host"], each["workers"]) for each in begins} == {(1, "train-0", 2), (1, "train-1", 2)}
    steps = len(jobs.read_notes(tmp_path, "step"))
    statuses, outputs = run_pods(environ, argv, None, None)
    assert statuses == [0, 0], outputs
    assert jobs.read_notes(tmp_path, "step")[steps]["step"] > 3
    assert jobs.difference(tmp_path, undisturbed) < jobs.CLOSE


def test_survivors_name_the_pod_that_is_killed(environ, tmp_path):
    killed_s = []

    def reached():
        killed_s[:] = [time.time()]
        return len(jobs.read_notes(tmp_path, "step")) > 6

    argv = [str(tmp_path), "--step-s", "0.2", "--epochs", "30"]
    statuses, outputs = run_pods(environ, argv, reached, signal.SIGKILL)
    # Without `Recovery` an error; 143 would tell Kubernetes to begin again, and not to count it.
    assert statuses[0] == 1, outputs
    [ends] = jobs.read_notes(tmp_path, "ends")
    assert re.search(r"worker 1 \(train-1\.train:2222\) is gone", ends["error"])
    assert ends["error"].splitlines()[1] in outputs[0]
    assert ends["time_s"] - killed_s[0] < 15

"""Each check is a function of what it is given: tables of machines that are not here."""

import socket
from types import SimpleNamespace

import psutil
import pynvml
import pytest

from tfscale import ClusterSpec
from tfscale.cluster.nvml import NOT_INSTALLED, NOT_LOADED, Driver, Gpu
from tfscale.doctor import exposure, gather, gpus, job, machine, software
from tfscale.doctor.finding import Finding, worst_level
from tfscale.framework.canary import Canary

TWO = ClusterSpec(("a:2222", "b:2222"), 0, source="TF_CONFIG")
ONE = ClusterSpec(("localhost:2222",), 0, source="this machine")
MIB = 2**20
T4 = Gpu(0, "GPU-0", "Tesla T4", 15360 * MIB, 3 * MIB)
T4_BUSY = Gpu(1, "GPU-1", "Tesla T4", 15360 * MIB, 9000 * MIB)
# Its memory is not told.
A100 = Gpu(2, "GPU-2", "NVIDIA A100-SXM4-80GB")
BOTH = {"lo": ["127.0.0.1", "::1"], "eth0": ["10.0.0.7"]}


def levels(findings):
    findings = [findings] if isinstance(findings, Finding) else findings
    assert all(bool(finding.way_out) == (finding.level != "ok") for finding in findings)
    assert all(finding.found and finding.check for finding in findings)
    return [finding.level for finding in findings]


@pytest.mark.parametrize(
    ("version", "level"), [((3, 9, 18), "error"), ((3, 10, 0), "ok"), ((3, 11, 7), "ok"), ((4, 0, 0), "ok")]
)
def test_python(version, level):
    assert levels(software.check_python(version)) == [level]


@pytest.mark.parametrize(
    ("like", "is_known", "changed", "level", "said"),
    [
        ("3.15.1", True, (), "ok", "as it was tried"),
        ("3.15.1", False, (), "ok", "nothing that tfscale stands on differs from 3.15.1"),
        ("", False, ("keras.src.a:f",), "warning", "other code"),
    ],
)
def test_code(like, is_known, changed, level, said):
    finding = software.check_code([Canary("keras", "3.16.0", is_known, like, changed)])
    assert levels(finding) == [level]
    assert said in finding.found


@pytest.mark.parametrize(
    ("versions", "backend", "level", "said"),
    [
        ({"tfscale": "0.1", "TensorFlow": "2.21.0", "Keras": "3.15.1"}, "tensorflow", "ok", "TensorFlow 2.21.0"),
        ({"tfscale": "0.1", "TensorFlow": None, "Keras": "3.15.1"}, "tensorflow", "error", "TensorFlow missing"),
        ({"tfscale": "0.1", "TensorFlow": "2.15.0", "Keras": "2.15.0"}, "tensorflow", "error", "Keras 2.15.0"),
        ({"tfscale": "0.1", "TensorFlow": "2.21.0", "Keras": "3.15.1"}, "jax", "error", "Keras 3.15.1"),
    ],
)
def test_packages(versions, backend, level, said):
    finding = software.check_packages(versions, backend)
    assert levels(finding) == [level]
    assert said in finding.found


STARTED = {"import_s": 4.2, "backend": "tensorflow", "cuda": "12.5"}


@pytest.mark.parametrize(
    ("report", "log", "level", "said"),
    [
        (STARTED, "", "ok", "imported in 4.2 s, built with CUDA 12.5"),
        ({**STARTED, "cuda": None}, "", "ok", "built without CUDA"),
        ({**STARTED, "backend": "jax"}, "", "error", "backend 'jax'"),
        ({"stage": "import", "error": "No module named 'tensorflow'"}, "", "error", "No module named 'tensorflow'"),
        ({"stage": "import"}, "trace\nIllegal instruction\n\n", "error", "Illegal instruction"),
        ({}, "", "error", "it said nothing"),
    ],
)
def test_tensorflow(report, log, level, said):
    finding = software.check_tensorflow(report, log)
    assert levels(finding) == [level]
    assert said in finding.found


@pytest.mark.parametrize(
    ("driver", "problem", "expected", "said"),
    [
        (Driver(absence=NOT_INSTALLED), "", ["ok"], "an NVIDIA driver is not installed"),
        (Driver(absence=NOT_LOADED), "", ["warning"], "the NVIDIA driver is not loaded"),
        (Driver(), "A rule.\nReceived: Unknown Error.", ["warning"], "A rule. Received: Unknown Error."),
        (Driver("550.54.15"), "", ["warning"], "driver 550.54.15 lists no GPU"),
        (Driver("550.54.15", (T4,)), "", ["ok"], "driver 550.54.15; 0: Tesla T4"),
        (Driver("550.54.15", (T4, T4_BUSY)), "", ["ok", "warning"], "GPU 1: 9000 of 15360 MiB"),
        (Driver("550.54.15", (T4, A100)), "", ["ok", "warning"], "of several kinds"),
        (Driver("550.54.15", (T4_BUSY, A100)), "", ["ok", "warning", "warning"], "GPU 1: 9000 of 15360 MiB"),
    ],
)
def test_driver(driver, problem, expected, said):
    findings = gpus.check_driver(driver, problem)
    assert levels(findings) == expected
    assert said in findings[-1].found


@pytest.mark.parametrize(
    ("error", "driver", "problem"),
    [
        (pynvml.NVMLError_LibraryNotFound(), Driver(absence=NOT_INSTALLED), ""),
        (pynvml.NVMLError_DriverNotLoaded(), Driver(absence=NOT_LOADED), ""),
        (pynvml.NVMLError_LibRmVersionMismatch(), Driver(), "version mismatch"),
    ],
)
def test_driver_that_fails_is_a_finding(monkeypatch, error, driver, problem):
    def fail():
        raise error

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    found, said = gather.ask_gpus()
    assert found == driver
    assert problem in said
    assert bool(said) == bool(problem)


@pytest.mark.parametrize(
    ("listed", "seen", "environ", "cuda", "expected", "said"),
    [
        (0, None, {}, None, [], ""),
        (0, [], {}, "12.5", ["ok"], "CPUs"),
        (2, ["GPU:0", "GPU:1"], {}, "12.5", ["ok"], "sees 2"),
        (2, ["GPU:0"], {"CUDA_VISIBLE_DEVICES": "1"}, "12.5", ["ok"], "CUDA_VISIBLE_DEVICES=1"),
        (2, [], {"CUDA_VISIBLE_DEVICES": "-1"}, "12.5", ["ok"], "CUDA_VISIBLE_DEVICES=-1"),
        (2, [], {}, None, ["error"], "without CUDA"),
        (2, [], {}, "12.5", ["error"], "the driver lists 2, TensorFlow sees none"),
    ],
)
def test_visible(listed, seen, environ, cuda, expected, said):
    findings = gpus.check_visible(listed, seen, environ, cuda)
    assert levels(findings) == expected
    assert all(said in finding.found for finding in findings)


@pytest.mark.parametrize(
    ("num_gpus", "num_workers", "found", "level"),
    [(0, 4, "", "ok"), (1, 1, "", "ok"), (2, 1, "libnccl.so.2", "ok"), (2, 1, "", "warning"), (1, 2, "", "warning")],
)
def test_nccl(num_gpus, num_workers, found, level):
    assert levels(gpus.check_nccl(num_gpus, num_workers, found)) == [level]


def test_variables_are_named_without_their_values():
    finding = job.check_variables({"TF_CONFIG": "secret", "SLURM_JOB_ID": "1", "SLURM_PROCID": "2", "PATH": "/"})
    assert finding.found == "TF_CONFIG, SLURM_* (2)"
    assert job.check_variables({"HOSTNAME": "a"}).found == "none of a cluster is set"


@pytest.mark.parametrize(
    ("spec", "problem", "level", "said"),
    [
        (ONE, "", "ok", "one worker (from this machine)"),
        (TWO, "", "ok", "worker 0 of 2 (from TF_CONFIG): a:2222, b:2222"),
        (None, "half.\nReceived: x.", "error", "half. Received: x."),
    ],
)
def test_job(spec, problem, level, said):
    finding = job.check_job(spec, problem)
    assert levels(finding) == [level]
    assert finding.found == said


@pytest.mark.parametrize(
    ("num_workers", "interfaces", "listening", "level", "said"),
    [
        (1, BOTH, None, "ok", "one worker: TensorFlow opens no port"),
        (2, {"lo": ["127.0.0.1"]}, None, "ok", "listens in a network that the workers have alone"),
        (2, {"lo": ["127.0.0.1"]}, ["[::]:2222"], "ok", "listens on [::]:2222, in a network that the workers have"),
        (2, BOTH, None, "warning", "listens on every interface (lo 127.0.0.1 ::1, eth0 10.0.0.7), without a password"),
        (
            2,
            BOTH,
            ["[::]:2222"],
            "warning",
            "on [::]:2222, that is every interface (lo 127.0.0.1 ::1, eth0 10.0.0.7), w",
        ),
        (2, BOTH, ["0.0.0.0:2222"], "warning", "on 0.0.0.0:2222, that is every interface (lo"),
        (2, BOTH, ["10.0.0.7:2222"], "warning", "on 10.0.0.7:2222, that is some of lo 127.0.0.1 ::1, eth0 10.0.0.7, w"),
        (2, BOTH, ["127.0.0.1:2222"], "ok", "on 127.0.0.1:2222, which this host alone reaches"),
        (2, {}, None, "warning", "listens on every interface (all), without a password"),
    ],
)
def test_exposure(num_workers, interfaces, listening, level, said):
    report = {} if listening is None else {"listening": listening}
    finding = exposure.check_exposure(num_workers, interfaces, report)
    assert levels(finding) == [level]
    assert said in finding.found
    assert ("without a password" in finding.found) == (level == "warning")


@pytest.mark.parametrize(
    ("num_workers", "environ", "level"),
    [(1, {}, "ok"), (2, {}, "warning"), (2, {"TFSCALE_SECRET": "correct horse battery"}, "ok")],
)
def test_secret(num_workers, environ, level):
    finding = exposure.check_secret(num_workers, environ)
    assert levels(finding) == [level]
    assert "horse" not in finding.found + finding.way_out


def test_interfaces_of_this_host():
    found = gather.list_interfaces()
    assert set(found) == {name for _, name in socket.if_nameindex()}
    assert "127.0.0.1" in found["lo"]


def test_interfaces_as_psutil_tells_them(monkeypatch):
    def address(family, text):
        return SimpleNamespace(family=family, address=text)

    link = address(psutil.AF_LINK, "02:42:0a:00:00:07")
    here = [address(socket.AF_INET, "10.0.0.7"), address(socket.AF_INET6, "fe80::42%eth0"), link]
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {"eth0": here, "eth1": [link]})
    assert gather.list_interfaces() == {"eth0": ["10.0.0.7", "fe80::42"], "eth1": []}


@pytest.mark.parametrize("error", [PermissionError("netlink"), psutil.AccessDenied()])
def test_interfaces_of_a_host_that_does_not_tell(monkeypatch, error):
    def refuse():
        raise error

    monkeypatch.setattr(psutil, "net_if_addrs", refuse)
    assert gather.list_interfaces() == {}


@pytest.mark.parametrize(
    ("addresses", "own", "expected"),
    [
        ({"a": ["10.0.0.1"], "b": ["10.0.0.2"]}, ["10.0.0.1"], ["ok"]),
        ({"a": ["10.0.0.1"], "b": ["10.0.0.2"]}, [], ["ok", "warning"]),
        ({"a": ["10.0.0.1"], "b": []}, ["10.0.0.1"], ["error"]),
    ],
)
def test_names(addresses, own, expected):
    assert levels(job.check_names(TWO, addresses, own)) == expected


@pytest.mark.parametrize(("problem", "level"), [("", "ok"), ("Port 2222 ...\nReceived: ...", "error")])
def test_port(problem, level):
    assert levels(job.check_port(TWO, problem)) == [level]


@pytest.mark.parametrize(
    ("spec", "environ", "num_warnings"),
    [
        (TWO, {}, 0),
        (TWO, {"http_proxy": ""}, 0),
        (TWO, {"http_proxy": "http://p:1"}, 1),
        (TWO, {"HTTPS_PROXY": "http://p:1"}, 1),
        (TWO, {"http_proxy": "http://p:1", "no_proxy": "a"}, 1),
        (TWO, {"http_proxy": "http://p:1", "no_proxy": "a, b"}, 0),
        (ONE, {"http_proxy": "http://p:1"}, 0),
    ],
)
def test_proxy(spec, environ, num_warnings):
    assert levels(job.check_proxy(spec, environ)) == ["warning"] * num_warnings


INTRA = "TF_NUM_INTRAOP_THREADS"


@pytest.mark.parametrize(
    ("environ", "num_cores", "quota", "num_workers_here", "expected"),
    [
        ({}, 8, None, 1, ["ok"]),
        ({INTRA: "8"}, 8, None, 2, ["ok"]),
        ({INTRA: "9"}, 8, None, 1, ["ok", "warning"]),
        ({"OMP_NUM_THREADS": "64"}, 8, None, 1, ["ok", "warning"]),
        ({"OMP_NUM_THREADS": "many"}, 8, None, 1, ["ok", "warning"]),
        ({}, 8, 8.0, 1, ["ok"]),
        ({}, 64, 2.0, 1, ["ok", "warning"]),
        ({INTRA: "2"}, 64, 2.0, 1, ["ok"]),
        ({}, 8, 0.5, 2, ["ok", "warning", "warning"]),
    ],
)
def test_threads(environ, num_cores, quota, num_workers_here, expected):
    assert levels(machine.check_threads(environ, num_cores, quota, num_workers_here)) == expected


@pytest.mark.parametrize(
    ("text", "cores"), [("max 100000\n", None), ("200000 100000\n", 2.0), ("", None), ("1 0", None), ("-1", None)]
)
def test_quota(text, cores):
    assert machine.parse_quota(text) == cores


@pytest.mark.parametrize(
    ("free", "num_gpus", "expected"),
    [
        ({"/work": 2048 * MIB}, 0, ["ok"]),
        ({"/work": 1023 * MIB}, 0, ["warning"]),
        ({"/work": 49 * MIB}, 0, ["error"]),
        ({"/dev/shm": 63 * MIB}, 0, []),
        ({"/dev/shm": 63 * MIB}, 1, ["warning"]),
        ({"/dev/shm": 64 * MIB, "/tmp": 0}, 1, ["error"]),
    ],
)
def test_space(free, num_gpus, expected):
    assert levels(machine.check_space(free, num_gpus)) == expected


def test_worst_level():
    assert worst_level([]) == "ok"
    assert worst_level([Finding(level, "a", "b") for level in ("ok", "error", "warning")]) == "error"

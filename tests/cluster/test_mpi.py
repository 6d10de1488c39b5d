import pytest

from tests.cluster.refusal import assert_refused
from tfscale import resolve_cluster
from tfscale.cluster import mpi
from tfscale.cluster.hydra import find_mpiexec, find_proxy

OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3"}
PMI = {"PMI_RANK": "1", "PMI_SIZE": "3"}
PORT = {"TFSCALE_PORT": "5"}
LOCAL = ("localhost:5", "localhost:6", "localhost:7")


@pytest.mark.parametrize(
    ("environ", "source", "workers"),
    [
        ({**OPEN_MPI, **PORT, "OMPI_COMM_WORLD_LOCAL_SIZE": "3"}, "Open MPI", LOCAL),
        ({**PMI, **PORT, "MPI_LOCALNRANKS": "3"}, "PMI", LOCAL),
        ({**OPEN_MPI, **PORT, "TFSCALE_HOSTS": "n[08-10]"}, "Open MPI", ("n08:5", "n09:5", "n10:5")),
        ({**OPEN_MPI, **PORT, "TFSCALE_HOSTS": "a,a,b", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, "Open MPI",
         ("a:5", "a:6", "b:5")),
        ({**PMI, **PORT, "TFSCALE_HOSTS": "a:7,b:8,[::1]:9"}, "PMI", ("a:7", "b:8", "[::1]:9")),
        # Open MPI is looked at first.
        ({**OPEN_MPI, **PMI, **PORT, "TFSCALE_HOSTS": "a,b,c", "PMI_RANK": "2"}, "Open MPI", ("a:5", "b:5", "c:5")),
    ],
)  # fmt: skip
def test_workers(environ, source, workers):
    spec = resolve_cluster(environ)
    assert (spec.source, spec.workers, spec.rank) == (source, workers, 1)


@pytest.mark.parametrize("environ", [{"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
                                     {"PMI_RANK": "0", "PMI_SIZE": "1"}])  # fmt: skip
def test_one_process_needs_no_hosts(environ):
    assert resolve_cluster(environ).num_workers == 1


def test_two_jobs_on_one_machine_have_ports_of_their_own():
    local = {**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "3"}
    first, second = (resolve_cluster({**local, "PMIX_NAMESPACE": name}).workers for name in ("prterun-1", "prterun-2"))
    assert set(first).isdisjoint(second)


def write_stat(folder, pid, name, parent):
    (folder / pid).mkdir()
    (folder / pid / "stat").write_text(f"{pid} ({name}) S {parent} {pid} 0\n")


def test_two_jobs_of_hydra_are_told_apart_by_their_proxies(tmp_path):
    """Its variables are the same for both. A wrapper may stand between, and a program may have any name."""
    write_stat(tmp_path, "1", "init", "0")
    for proxy, wrapper, worker in (("10", "11", "12"), ("20", "21", "22")):
        write_stat(tmp_path, proxy, "hydra_pmi_proxy", "1")
        write_stat(tmp_path, wrapper, "a ) S 99 (sh", proxy)
        write_stat(tmp_path, worker, "python", wrapper)
    assert [find_proxy(worker, tmp_path) for worker in ("12", "22", "11")] == ["10", "20", "10"]
    assert find_proxy("1", tmp_path) is None
    assert find_proxy("77", tmp_path) is None
    # This process is no worker of Hydra.
    assert find_proxy() is None


def test_a_job_of_mpich_is_told_apart_on_all_hosts(tmp_path):
    """Proxies of a job are told one address; those of Intel MPI, and what has ended, say none."""
    said = {"10": "--control-port\0n1:40285\0--proxy-id\0000", "20": "--control-port\0n1:40285\0--proxy-id\0001"}
    said |= {"30": "--control-port\0n1:45629\0--proxy-id\0000", "40": "--upstream-host\0n1\0", "50": "--control-port"}
    for proxy, words in said.items():
        write_stat(tmp_path, proxy, "hydra_pmi_proxy", "1")
        (tmp_path / proxy / "cmdline").write_text(f"/usr/bin/hydra_pmi_proxy\0{words}\0")
    write_stat(tmp_path, "60", "hydra_pmi_proxy", "1")
    found = [find_mpiexec(proxy, tmp_path) for proxy in (*said, "60", "77")]
    assert found == ["n1:40285", "n1:40285", "n1:45629", None, None, None, None]


def test_ports_of_a_job_of_hydra(monkeypatch):
    workers = []
    for proxy in ("32403", "32402", "32402"):
        monkeypatch.setattr(mpi, "find_proxy", lambda proxy=proxy: proxy)
        workers.append(resolve_cluster({**PMI, "MPI_LOCALNRANKS": "3"}).workers)
    assert set(workers[0]).isdisjoint(workers[1])
    assert workers[1] == workers[2]
    # On several hosts there are several proxies: all workers derive the same without.
    hosts = {**PMI, "TFSCALE_HOSTS": "a,b,c"}
    with_proxy = resolve_cluster(hosts).workers
    monkeypatch.setattr(mpi, "find_proxy", lambda: None)
    assert resolve_cluster(hosts).workers == with_proxy
    # But all of a job are told the address of one `mpiexec`.
    ports = []
    for mpiexec in ("n1:40285", "n1:40285", "n1:45629"):
        monkeypatch.setattr(mpi, "find_mpiexec", lambda mpiexec=mpiexec: mpiexec)
        ports.append([worker.rpartition(":")[2] for worker in resolve_cluster(hosts).workers])
    assert ports[0] == ports[1]
    assert set(ports[0]).isdisjoint(ports[2])
    # Who is not started by Hydra does not look for it.
    assert resolve_cluster({**OPEN_MPI, "TFSCALE_HOSTS": "a,b,c"}).workers[0] == "a:61000"


@pytest.mark.parametrize(
    ("environ", "parts"),
    [
        (OPEN_MPI, ["Received: no OMPI_COMM_WORLD_LOCAL_SIZE; missing: TFSCALE_HOSTS."]),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, ["LOCAL_SIZE='2'; missing: TFSCALE_HOSTS."]),
        ({**PMI, "MPI_LOCALNRANKS": "1"}, ["missing: TFSCALE_HOSTS."]),
        ({"OMPI_COMM_WORLD_RANK": "0"}, ["missing: OMPI_COMM_WORLD_SIZE."]),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, ["missing: OMPI_COMM_WORLD_RANK."]),
        ({"PMI_RANK": "0"}, ["missing: PMI_SIZE."]),
        # Rank and size were lost on the way: this is no machine for itself.
        (
            {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
            [
                "Received: OMPI_COMM_WORLD_LOCAL_SIZE='2'; missing: OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE.",
                "or unset OMPI_",
            ],
        ),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "0"}, ["missing: OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE."]),
        (
            {"MPI_LOCALNRANKS": "2"},
            ["missing: PMI_RANK, PMI_SIZE.", "or unset MPI_LOCALNRANKS to train on this machine"],
        ),
        ({"MPI_LOCALRANKID": "0"}, ["missing: PMI_RANK, PMI_SIZE."]),
        ({**PMI, "PMI_RANK": "3"}, ["`PMI_RANK` must be an integer from 0 to 2"]),
        ({**PMI, "PMI_SIZE": "0"}, ["`PMI_SIZE` must be an integer from 1"]),
        ({**PMI, "PMI_SIZE": ""}, ["`PMI_SIZE` must be an integer from 1"]),
        ({**PMI, "TFSCALE_HOSTS": "a,b"}, ["one host for each of the 3 workers", "which names 2"]),
        ({**PMI, "TFSCALE_HOSTS": ""}, ["`TFSCALE_HOSTS` must be a list of hosts"]),
        ({**PMI, "TFSCALE_HOSTS": "a:1,a:1,b:1"}, ["an address of its own"]),
    ],
)
def test_refusal(environ, parts):
    assert_refused(environ, *parts)

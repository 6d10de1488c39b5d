"""What does this machine say? The only place where the doctor looks; all judging is elsewhere."""

import ctypes.util
import importlib.metadata
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tfscale.cluster import ClusterSpec
from tfscale.cluster.nvml import Driver, ask_driver
from tfscale.cluster.preflight.names import Lookup
from tfscale.cluster.preflight.ports import listen
from tfscale.doctor.job import host_of
from tfscale.doctor.machine import SHARED
from tfscale.errors import ClusterError, LaunchError

_DRIVER_S = 30.0
_NAMES_S = 5.0
_POLL_S = 0.02
_NCCL_PACKAGES = ("nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-nccl-cu11")


def ask_gpus() -> tuple[Driver, str]:
    """Returns what the NVIDIA driver says; and why it could not be asked, if so."""
    try:
        return ask_driver(timeout_s=_DRIVER_S), ""
    except LaunchError as error:
        return Driver(), str(error)


def find_nccl() -> str:
    """Returns where NCCL was found; empty for nowhere."""
    for package in _NCCL_PACKAGES:
        try:
            return f"{package} {importlib.metadata.version(package)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return ctypes.util.find_library("nccl") or ""


def try_port(spec: ClusterSpec) -> str:
    """Opens this worker's port for a moment; returns what hinders."""
    port = int(spec.workers[spec.rank].rpartition(":")[2])
    try:
        listen(port, f"worker {spec.rank} ({spec.workers[spec.rank]})", grace_s=0.5).close()
    except ClusterError as error:
        return str(error)
    return ""


def look_up_hosts(spec: ClusterSpec) -> tuple[dict[str, list[str]], list[str]]:
    """Returns the IP addresses of each host of the job, and those among them that are this host's."""
    hosts = dict.fromkeys(host_of(address) for address in spec.workers)
    lookups = {host: Lookup(host, 1) for host in hosts}
    until_s = time.monotonic() + _NAMES_S
    while not all(lookup.is_done for lookup in lookups.values()) and time.monotonic() < until_s:
        time.sleep(_POLL_S)
    found = {
        host: sorted({str(address[0]) for _, address in lookup.addresses}) if lookup.is_done else []
        for host, lookup in lookups.items()
    }
    own = host_of(spec.workers[spec.rank])
    return found, [address for address in found[own] if _is_own(address)]


def _is_own(address: str) -> bool:
    """Whether an IP address is this host's: a socket can be bound to those only."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def list_interfaces() -> dict[str, list[str]]:
    """Returns the addresses of each of this host's network interfaces, as far as the system tells."""
    import psutil

    try:
        found = psutil.net_if_addrs()
    except (psutil.Error, OSError):
        return {}
    # Of an address that holds on one link alone psutil says the link too, behind "%".
    return {
        name: [each.address.partition("%")[0] for each in addresses if each.family in (socket.AF_INET, socket.AF_INET6)]
        for name, addresses in found.items()
    }


def read_quota() -> str:
    """Returns how much of the cores' time this container may use, as the system writes it."""
    try:
        return Path("/sys/fs/cgroup/cpu.max").read_text()
    except OSError:
        return ""


def read_free_bytes() -> dict[str, int]:
    """Returns the free space where a run writes."""
    directories = dict.fromkeys([os.getcwd(), tempfile.gettempdir(), SHARED])
    return {each: shutil.disk_usage(each).free for each in directories if os.path.isdir(each)}


def without_cluster(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment in which this process is alone."""
    alone = '{"cluster": {"worker": ["localhost:1"]}, "task": {"type": "worker", "index": 0}}'
    return {**environ, "TF_CONFIG": alone}

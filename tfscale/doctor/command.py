"""`tfscale doctor`: what it looks at, in order."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Mapping

from tfscale.cluster import ClusterSpec, resolve_cluster
from tfscale.cluster.cores import find_cores
from tfscale.cluster.deadline import read_timeout_s
from tfscale.cluster.preflight.facts import installed_version
from tfscale.doctor import exposure, gather, gpus, job, machine, report, software
from tfscale.doctor.all_reduce_check import check_all_reduce, read_timings
from tfscale.doctor.child import ask_tensorflow
from tfscale.doctor.finding import ERROR, OK, Finding, worst_level
from tfscale.errors import ClusterError
from tfscale.framework.canary import judge_installed


def run(args: argparse.Namespace) -> int:
    """Runs the subcommand and returns its exit status.

    Raises:
        ClusterError: The deadline is no number of seconds.
    """
    environ = dict(os.environ)
    timeout_s = read_timeout_s(args.timeout_s, environ)
    spec, findings = look_at_job(environ)
    is_alone = spec is None or worst_level(findings) == ERROR
    answer, log = ask_tensorflow(gather.without_cluster(environ) if is_alone else environ, timeout_s)
    findings = [*look_at_software(environ), software.check_tensorflow(answer, log), *findings]
    if spec is not None:
        findings.append(exposure.check_exposure(spec.num_workers, gather.list_interfaces(), answer))
        findings.append(exposure.check_secret(spec.num_workers, environ))
    findings += look_at_machine(environ, answer, 1 if spec is None else spec.num_workers)
    findings += machine.check_threads(
        environ, len(find_cores()), machine.parse_quota(gather.read_quota()), _workers_here(spec)
    )
    findings += check_all_reduce(answer, 1 if spec is None else spec.num_workers)
    _print(args.json, spec, findings, answer)
    return 1 if worst_level(findings) == ERROR else 0


def look_at_software(environ: Mapping[str, str]) -> list[Finding]:
    """Judges what is installed, without importing it."""
    versions = {name: installed_version(name) for name in ("tfscale", "TensorFlow", "Keras")}
    backend = environ.get("KERAS_BACKEND", "tensorflow")
    canaries = [judge_installed(name.lower(), found) for name, found in versions.items() if found and name != "tfscale"]
    return [
        software.check_python(tuple(sys.version_info[:3])),
        software.check_packages(versions, backend),
        software.check_code(canaries),
    ]


def look_at_job(environ: Mapping[str, str]) -> tuple[ClusterSpec | None, list[Finding]]:
    """Returns the job, None where it is described by halves; and what was found of it on this host."""
    findings = [job.check_variables(environ)]
    try:
        spec = resolve_cluster(environ)
    except ClusterError as error:
        return None, [*findings, job.check_job(None, str(error))]
    findings.append(job.check_job(spec, ""))
    if spec.num_workers > 1:
        findings += job.check_names(spec, *gather.look_up_hosts(spec))
        findings += [job.check_port(spec, gather.try_port(spec)), *job.check_proxy(spec, environ)]
    return spec, findings


def look_at_machine(environ: Mapping[str, str], answer: Mapping[str, object], num_workers: int) -> list[Finding]:
    """Judges GPUs and space."""
    driver, problem = gather.ask_gpus()
    seen = answer.get("gpus")
    names = [str(each) for each in seen] if isinstance(seen, list) else None
    cuda = answer.get("cuda")
    num_gpus = len(names or ())
    return [
        *gpus.check_driver(driver, problem),
        *gpus.check_visible(len(driver.gpus), names, environ, str(cuda) if cuda else None),
        gpus.check_nccl(num_gpus, num_workers, gather.find_nccl()),
        *machine.check_space(gather.read_free_bytes(), num_gpus),
    ]


def _workers_here(spec: ClusterSpec | None) -> int:
    """Workers on the host of this one."""
    if spec is None:
        return 1
    return sum(job.host_of(each) == job.host_of(spec.workers[spec.rank]) for each in spec.workers)


def _print(as_json: bool, spec: ClusterSpec | None, findings: list[Finding], answer: dict[str, object]) -> None:
    """The chief prints everything; the others, what is wrong with them."""
    timings = read_timings(answer)
    replicas = answer.get("num_replicas")
    num_replicas = replicas if isinstance(replicas, int) else 1
    rank, num_workers = (0, 1) if spec is None else (spec.rank, spec.num_workers)
    title = f"tfscale doctor on {socket.gethostname()}" + (
        f", worker {rank} of {num_workers}" if num_workers > 1 else ""
    )
    if rank > 0:
        # What holds for the whole job, the chief has said.
        of_job = (exposure.EXPOSURE, exposure.MEETING)
        findings = [finding for finding in findings if finding.level != OK and finding.check not in of_job]
        timings = []
        if not findings:
            return
    if as_json:
        place = {"host": socket.gethostname(), "rank": rank, "num_workers": num_workers}
        sys.stdout.write(report.as_json_text(place, findings, timings, num_replicas))
    else:
        sys.stdout.write(report.as_text(title, findings, timings, num_replicas))
    sys.stdout.flush()

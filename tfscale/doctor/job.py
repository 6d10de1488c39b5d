"""Who is in the job, and can this worker take its place in it?"""

from collections import Counter
from collections.abc import Mapping, Sequence

from tfscale.cluster import ClusterSpec
from tfscale.cluster.engines import names_of_table
from tfscale.doctor.finding import ERROR, OK, WARNING, Finding

_PREFIXES = ("SLURM_", "OMPI_", "PMI_", "PMIX_", "TFSCALE_")
_NAMES = ("TF_CONFIG", "JOB_COMPLETION_INDEX", *names_of_table())
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
_NO_PROXIES = ("no_grpc_proxy", "no_proxy")


def check_variables(environ: Mapping[str, str]) -> Finding:
    """Lists what the environment says of a job: names alone."""
    alone = [name for name in _NAMES if name in environ]
    counts = Counter(prefix for name in environ for prefix in _PREFIXES if name.startswith(prefix))
    kinds = [f"{prefix}* ({count})" for prefix, count in counts.items()]
    return Finding(OK, "variables", ", ".join([*alone, *kinds]) or "none of a cluster is set")


def check_job(spec: ClusterSpec | None, problem: str) -> Finding:
    """Says which job this process is in.

    Args:
        spec: The job; None where the environment describes it by halves.
        problem: Then the message.
    """
    if spec is None:
        return Finding(
            ERROR, "job", problem.replace("\n", " "), "Correct it, or unset those variables to train on this machine."
        )
    if spec.num_workers == 1:
        return Finding(OK, "job", f"one worker (from {spec.source})")
    workers = ", ".join(spec.workers[:8]) + (" ..." if spec.num_workers > 8 else "")
    return Finding(OK, "job", f"worker {spec.rank} of {spec.num_workers} (from {spec.source}): {workers}")


def check_port(spec: ClusterSpec, problem: str) -> Finding:
    """Says whether this worker's port is free.

    Args:
        spec: The job.
        problem: What happened when it was tried; empty where it is free.
    """
    port = spec.workers[spec.rank].rpartition(":")[2]
    if not problem:
        return Finding(OK, "port", f"port {port} is free")
    return Finding(ERROR, "port", problem.replace("\n", " "), "End what holds it, or choose another port.")


def check_names(spec: ClusterSpec, addresses: Mapping[str, Sequence[str]], own: Sequence[str]) -> list[Finding]:
    """Judges whether the hosts of the workers are known here, and whether this worker's is this host.

    Args:
        spec: The job.
        addresses: The IP addresses of each host in it; none where its name leads nowhere.
        own: Those of all these addresses that are this host's.
    """
    unknown = [host for host, found in addresses.items() if not found]
    if unknown:
        return [
            Finding(
                ERROR,
                "names",
                f"not known here: {', '.join(unknown[:8])}",
                "Correct the names where the job is described, or give IP addresses.",
            )
        ]
    findings = [Finding(OK, "names", f"all {len(addresses)} host name(s) or address(es) are known here")]
    host = host_of(spec.workers[spec.rank])
    if not set(addresses[host]) & set(own):
        findings.append(
            Finding(
                WARNING,
                "names",
                f"worker {spec.rank} is to be on {host}, which leads to {', '.join(addresses[host])}: not this host",
                "Look whether this worker has the right rank. Where ports are passed on from that host, all is well.",
            )
        )
    return findings


def check_proxy(spec: ClusterSpec, environ: Mapping[str, str]) -> list[Finding]:
    """Warns of a proxy through which gRPC would look for the other workers."""
    lower = {name.lower(): value for name, value in environ.items()}
    proxy = next((name for name in _PROXIES if lower.get(name)), None)
    if proxy is None or spec.num_workers == 1:
        return []
    exempt = ",".join(lower.get(name, "") for name in _NO_PROXIES).split(",")
    hosts = {host_of(address) for address in spec.workers}
    sent = [host for host in sorted(hosts) if not any(part and host.endswith(part.strip()) for part in exempt)]
    if not sent:
        return []
    return [
        Finding(
            WARNING,
            "proxy",
            f"{proxy} is set: TensorFlow would look for {', '.join(sent[:4])} through it",
            f"export no_proxy={','.join(sent[:4])}",
        )
    ]


def host_of(address: str) -> str:
    """Returns the host of an address `host:port`, without the brackets of IPv6."""
    return address.rpartition(":")[0].strip("[]")

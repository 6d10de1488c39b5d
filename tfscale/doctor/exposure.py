"""Who can reach the ports of the workers, and whom do the workers listen to?"""

from collections.abc import Mapping, Sequence
from typing import Any

from tfscale.cluster.secret import SECRET
from tfscale.doctor.finding import OK, WARNING, Finding

EXPOSURE, MEETING = "exposure", "secret"
_EVERYWHERE = ("0.0.0.0:", "[::]:")
_LOOPBACK = ("127.", "[::1]:")


def check_exposure(num_workers: int, interfaces: Mapping[str, Sequence[str]], report: Mapping[str, Any]) -> Finding:
    """Says who can reach TensorFlow's server, which asks nobody for a password.

    Args:
        num_workers: Of the job.
        interfaces: The addresses of each of this host's network interfaces, by its name.
        report: Of `tensorflow_child`; where its server was started, it says on which addresses it listens.
    """
    if num_workers == 1:
        return Finding(OK, EXPOSURE, "one worker: TensorFlow opens no port")
    listening = [str(each) for each in report.get("listening") or ()]
    seen = f" on {', '.join(listening)}," if listening else ""
    if set(interfaces) == {"lo"}:
        return Finding(OK, EXPOSURE, f"TensorFlow's server listens{seen} in a network that the workers have alone (lo)")
    if listening and all(each.startswith(_LOOPBACK) for each in listening):
        return Finding(OK, EXPOSURE, f"TensorFlow's server listens{seen} which this host alone reaches")
    shown = ", ".join(" ".join([name, *addresses]) for name, addresses in interfaces.items()) or "all"
    where = f"every interface ({shown})"
    if listening and not any(each.startswith(_EVERYWHERE) for each in listening):
        where = f"some of {shown}"
    return Finding(
        WARNING,
        EXPOSURE,
        f"TensorFlow's server listens{seen or ' on'} {'that is ' if seen else ''}{where}, without a password or "
        "encryption: whoever reaches its port can run code as you",
        "Keep the workers' ports inside of a network that you trust (SECURITY.md says how); on one machine: tfscale "
        "launch --isolate-network.",
    )


def check_secret(num_workers: int, environ: Mapping[str, str]) -> Finding:
    """Says whether others can take part in the workers' meeting and in their heartbeats."""
    if num_workers == 1:
        return Finding(OK, MEETING, "one worker: it meets nobody")
    if SECRET in environ:
        return Finding(OK, MEETING, f"what the workers say to each other is signed with {SECRET}")
    return Finding(
        WARNING,
        MEETING,
        f"{SECRET} is not set: who knows the list of workers can take part in their meeting",
        f"Give all workers the same {SECRET}, as `openssl rand -hex 32` prints one, or start them by tfscale launch.",
    )

"""Was this process told to train alone, whatever the environment says of others?

`TFSCALE_ALONE=1` makes a process a job of one worker. It is the way round every error that says that there must be
others: an allocation of several hosts of which one is wanted, variables that another job has left, one search per task.
"""

from collections.abc import Mapping

from tfscale.cluster import tf_config
from tfscale.cluster.shown import quoted
from tfscale.cluster.spec import ClusterSpec
from tfscale.cluster.variables import ALONE
from tfscale.errors import ClusterError

SOURCE = "this machine"


def read(environ: Mapping[str, str]) -> ClusterSpec | None:
    """Returns the job of one worker where `TFSCALE_ALONE` asks for it, else None.

    Raises:
        ClusterError: It holds something else than 0 or 1, or `TF_CONFIG` makes this process one of several workers.
    """
    value = environ.get(ALONE, "0")
    if value not in ("0", "1", ""):
        raise ClusterError(
            f"`{ALONE}` must be 1, or 0 for not alone.\nReceived: {quoted(value)}. Set it to 1, or unset it."
        )
    if value != "1":
        return None
    _refuse_several(environ)
    return this_machine()


def this_machine() -> ClusterSpec:
    """Returns the job of this machine alone."""
    # One worker opens no port. It has an address so that every spec has the same form.
    return ClusterSpec(workers=("localhost:2222",), rank=0, source=SOURCE)


def _refuse_several(environ: Mapping[str, str]) -> None:
    """Refuses what would let the other workers of a `TF_CONFIG` wait for this one."""
    try:
        spec = tf_config.read(environ)
    except ClusterError:
        # It names no worker that this is: nobody waits.
        return
    if spec is not None and spec.num_workers > 1:
        raise ClusterError(
            f"`{ALONE}=1` and `TF_CONFIG` contradict each other: alone, or one of several workers.\n"
            f"Received: {ALONE}=1, and TF_CONFIG for worker {spec.rank} of {spec.num_workers}. Unset one of the two."
        )

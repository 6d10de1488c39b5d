"""Who is in the job, and which worker am I?"""

from tfscale.cluster.resolve import resolve_cluster
from tfscale.cluster.spec import ClusterSpec

__all__ = ["ClusterSpec", "resolve_cluster"]

"""As what does a replica take a step that is to be that of one device?"""

from __future__ import annotations

import tensorflow as tf

from tfscale.replicas.replica_batch import local_replicas


class LoneReplica(tf.distribute.ReplicaContext):
    """The context of this worker's first replica, to which its number is told as 0, on whichever worker it is.

    TensorFlow finds the copy of a variable by the number among all replicas, less those of the workers before: from 0
    on, the third worker would look for one before its first.

    Args:
        strategy: Of the job.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        super().__init__(strategy, local_replicas(strategy).first)

    @property
    def replica_id_in_sync_group(self) -> tf.Tensor:
        """Zero."""
        return tf.constant(0, tf.int32)

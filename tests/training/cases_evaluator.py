"""A process that its job's manager has made the evaluator."""

import os

from tfscale import DataParallel, resolve_cluster


def begin():
    """Returns the status with which `DataParallel` ends such a process, and what becomes of one that is to be alone."""
    try:
        DataParallel(global_batch=32)
        status = "went on"
    except SystemExit as ended:
        status = ended.code
    os.environ["TFSCALE_ALONE"] = "1"
    dp = DataParallel(global_batch=32)
    return status, dp.num_replicas, resolve_cluster().source

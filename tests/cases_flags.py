"""Flags in a process of its own, that has not loaded TensorFlow."""

import sys

from absl import flags as absl_flags

import tfscale


def replicas(count):
    """Whether defining and parsing flags loads TensorFlow, and how many replicas there are after all."""
    values = absl_flags.FlagValues()
    tfscale.flags.define(flag_values=values, global_batch=8)
    values(["train.py", f"--simulate_replicas={count}"])
    is_loaded = "tensorflow" in sys.modules
    return is_loaded, tfscale.flags.data_parallel(flag_values=values).num_replicas


def network() -> bool:
    """Whether a network that compresses nothing loads TensorFlow."""
    tfscale.Network("ring", 0, "none", True, 5)
    return "tensorflow" in sys.modules

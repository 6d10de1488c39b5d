"""The unpromised names by which replicas and workers reach each other."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

import tensorflow as tf
from tensorflow.python.eager import context

# Collectives carry float32, float64, int32 and int64 only, one or the other bool and float16; pictures are bytes.
_SENT_AS = {
    **dict.fromkeys([tf.bool, tf.int8, tf.uint8, tf.int16, tf.uint16], tf.int32),
    **dict.fromkeys([tf.uint32, tf.uint64], tf.int64),
}


def type_on_the_wire(dtype: tf.DType) -> tf.DType:
    """The type as which numbers of another one are sent; back and forth keeps every bit.

    Args:
        dtype: Of numbers or truth values.
    """
    return tf.float32 if dtype.is_floating and dtype.size < 4 else _SENT_AS.get(dtype, dtype)


def type_of_sums(dtype: tf.DType, *, on_gpus: bool) -> tf.DType:
    """The type in which numbers of another one are added up over replicas.

    Why: collectives add in six types, on GPUs not in bfloat16 and int32 either, by NCCL as by any other way.
    Breaks first: tests/replicas/test_all_reduce.py.

    Args:
        dtype: Of numbers.
        on_gpus: Whether the replicas are GPUs.
    """
    if dtype.is_integer:
        wire = type_on_the_wire(dtype)
        return tf.int64 if on_gpus and wire == tf.int32 else wire
    return tf.float32 if on_gpus and dtype == tf.bfloat16 else dtype


def has_tensorflow_started() -> bool:
    """Whether TensorFlow runs already, and so cannot be told of other workers any more.

    Why: `MultiWorkerMirroredStrategy` finds out only after the workers have met, and says so in other words.
    Breaks first: tests/training/test_preflight.py::test_strategy_after_the_first_tensor.
    """
    return context.context()._context_handle is not None


def report_to_other_workers(message: str) -> None:
    """Makes the collectives that other workers wait in fail with `message`.

    Why: TensorFlow itself reports nothing; the others wait until heartbeats are missed.
    Breaks first: tests/data/test_two_workers.py::test_failure_of_one_worker_reaches_all.
    """
    # The code of an invalid argument: TensorFlow takes it for an error of the program, and does not try again.
    context.context().report_error_to_cluster(tf.errors.INVALID_ARGUMENT, message)


def abort_collectives(message: str) -> None:
    """Makes the collectives that this process waits in, and all later ones, fail with `message`; from any thread.

    Why: nothing public ends a wait for a worker that does not come.
    Breaks first: tests/training/test_gone.py.
    """
    context.context().abort_collective_ops(tf.errors.UNAVAILABLE, message)


def exchange_with_other_workers(own_key: str, other_keys: Sequence[str], *, timeout_s: float) -> bool:
    """Sets a key that all workers see, and waits for theirs; whether all came in time.

    Why: a worker that will take part in no collective any more has no public way to talk with the others.
    Breaks first: tests/data/test_two_workers.py::test_refusal_of_one_worker_reaches_all.
    """
    deadline_s = time.monotonic() + timeout_s
    try:
        context.context().set_config_key_value(own_key, "1")
        for key in other_keys:
            remaining_s = max(deadline_s - time.monotonic(), 0.001)
            context.context().get_config_key_value(key, timeout_in_ms=int(1000 * remaining_s) or 1)
    except tf.errors.OpError:
        return False
    return True


def tell_other_workers(key: str, text: str) -> None:
    """Lets other workers know a text by its key, and waits for nobody.

    Why: as for `exchange_with_other_workers`; and one worker alone may come here.
    Breaks first: tests/training/test_gone_in_loops.py.
    """
    with contextlib.suppress(tf.errors.OpError):
        context.context().set_config_key_value(key, text)


def hear_from_other_worker(key: str, *, timeout_s: float) -> str | None:
    """The text that a worker lets the others know, or None where none has come in time.

    Why: as for `tell_other_workers`.
    Breaks first: tests/training/test_gone_in_loops.py.
    """
    try:
        found = context.context().get_config_key_value(key, timeout_in_ms=int(1000 * timeout_s))
    except tf.errors.OpError:
        return None
    return str(found)

import pytest
import tensorflow as tf

from tfscale.framework.collectives import type_of_sums


@pytest.mark.parametrize(
    ("dtype", "on_cpus", "on_gpus"),
    [
        ("float32", "float32", "float32"),
        ("float16", "float16", "float16"),
        ("float64", "float64", "float64"),
        ("int64", "int64", "int64"),
        # Of these a collective on GPUs says that it does not support them, whichever library it is.
        ("bfloat16", "bfloat16", "float32"),
        ("int32", "int32", "int64"),
        # And of these on all devices.
        ("int8", "int32", "int64"),
        ("uint16", "int32", "int64"),
        ("uint32", "int64", "int64"),
    ],
)
def test_what_collectives_add_up(dtype, on_cpus, on_gpus):
    found = [type_of_sums(tf.as_dtype(dtype), on_gpus=each).name for each in (False, True)]
    assert found == [on_cpus, on_gpus]

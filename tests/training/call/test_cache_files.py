"""Workers that would write one file of `cache(filename)` are told before they begin."""

import tensorflow as tf

from tests.processes import run_workers
from tfscale.framework.datasets import cache_files


def test_files_of_a_pipeline():
    data = tf.data.Dataset.range(4).cache("/a").batch(2).cache().map(lambda x: x).cache("/b")
    assert sorted(cache_files(data)) == ["/a", "/b"]


def test_workers_with_one_file(tmp_path):
    for found in run_workers("tests.training.call.cases_cache_files:fits", 2, args=(str(tmp_path),)):
        assert found.pop("shared").startswith(
            "Each worker must have a file of its own for `cache(filename)`.\nReceived: /"
        )
        assert found == {"own": "trained", "memory": "trained", "written": "trained", "whole": "trained"}

"""The N = 1 contract with two worker processes: the cases that differ from those of test_workers.py in one process too.

What they have of their own comes before or after what workers send each other; or is among the cases whose gradients
are sent in small packs, by two workers as well, in compression/test_training.py; or meets others in a case there.
"""

import pytest

from tests.training import contract_run

EXACT = (
    "clipnorm",
    "global_clipnorm",
    "accumulation",
    "EMA with overwriting",
    "steps_per_execution",
    "mean_with_sample_weight",
    "reduction sum",
    "several inputs and outputs",
    "embedding, sparse gradients and clipnorm",
    "a layer that keeps an average, divided by calls",
    "LossScaleOptimizer, overflow on one replica",
    "mixed_float16",
    "one layer in bfloat16, nothing to round",
    "subclassed model, not built",
    "own train_step, loss object",
    "fit twice, initial_epoch",
    "losses in a dict and a list, in a step",
    "loss that is a sum by hand, beside noise",
    "add_loss in training only, zero at first, sums and means",
    "positions, Adam",
    "two optimizers, nothing built",
    "metrics that are one number of a batch",
    "metric that counts from one on",
    "metric that is never reset",
    "metrics counted by hand before a model has them",
    "metrics counted by hand, no model",
    "models that were not prepared",
    "loop, average_loss, a tf.function is given",
    "first batch uneven",
    "jit_compile",
    "masked sequence loss",
    "scalar loss function, ratio",
    "add_loss, mean and sum",
    "metrics AUC, precision, recall",
    "input: tf.data",
    "input: PyDataset",
    "train, test and predict on batch",
    "evaluate and predict, any batch",
)
IN_16_BITS = (
    "bf16, last batch uneven",
    "bf16, data smaller than N",
    "bf16, global_clipnorm",
    "bf16, steps_per_execution",
    "bf16, mean_with_sample_weight",
    "bf16, metrics AUC, precision, recall",
    "bf16, own train_step, loss by hand",
)
NAMES = EXACT + IN_16_BITS


@pytest.fixture(scope="module")
def worker_results(tmp_path_factory, references):
    directory = tmp_path_factory.mktemp("workers")
    return contract_run.run_on_workers(NAMES, 2, directory, references)


@pytest.mark.parametrize("name", NAMES)
def test_workers_equal_one_replica(worker_results, name):
    contract_run.check_on_workers(worker_results, name)

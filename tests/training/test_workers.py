"""The N = 1 contract with several worker processes over TF_CONFIG."""

import pytest

from tests.training import contract_run

NAMES = (
    "last batch uneven",
    "last batch smaller than N, batch norm",
    "first batch uneven",
    "data smaller than N",
    "clipnorm",
    "global_clipnorm",
    "accumulation",
    "accumulation and EMA, by hand",
    "EMA with overwriting",
    "steps_per_execution",
    "steps_per_execution, chosen",
    "micro-steps, masked sequence loss",
    "jit_compile",
    "run_eagerly",
    "masked sequence loss",
    "mean_with_sample_weight",
    "reduction sum",
    "scalar loss function, ratio",
    "add_loss, mean and sum",
    "several inputs and outputs",
    "metrics AUC, precision, recall",
    "embedding, sparse gradients and clipnorm",
    "gradients clipped by hand, beside a recurrent layer",
    "a layer that keeps an average, divided by calls",
    "LossScaleOptimizer, overflow on one replica",
    "mixed_float16",
    "subclassed model, not built",
    "own train_step, loss object",
    "own train_step, loss by hand",
    "two optimizers, own compile",
    "input: tf.data",
    "input: PyDataset",
    "input: generator",
    "validation_data, smaller than N",
    "train, test and predict on batch",
    "evaluate and predict, any batch",
    "fit twice, initial_epoch",
    "shuffled, times seen",
    "losses in a dict and a list, in a step",
    "loss that is a sum by hand, beside noise",
    "gather_rows in a contrastive loss",
    "add_loss in training only, zero at first, sums and means",
    "positions, Adam",
    "two optimizers, nothing built",
    "metrics that are one number of a batch",
    "models that were not prepared",
)
ON_THREE = ("last batch smaller than N, batch norm", "micro-steps, batch norm synchronised")


@pytest.fixture(scope="module")
def worker_results(tmp_path_factory, references):
    """Results of both workers, by rank and name; the workers run once."""
    directory = tmp_path_factory.mktemp("workers")
    return contract_run.run_on_workers(NAMES, 2, directory, references)


@pytest.mark.parametrize("name", NAMES)
def test_workers_equal_one_replica(worker_results, name):
    contract_run.check_on_workers(worker_results, name)


def test_three_workers_equal_one_replica(tmp_path, references):
    results = contract_run.run_on_workers(ON_THREE, 3, tmp_path, references)
    for name in ON_THREE:
        contract_run.check_on_workers(results, name)

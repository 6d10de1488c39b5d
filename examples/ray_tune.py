"""Look for a learning rate with Ray Tune: each trial is a `tfscale.ray.Trainer`, and ASHA ends those that learn little.

pip install 'tfscale[ray]'
python examples/ray_tune.py --workers 2 --at-a-time 4
"""

import argparse
from pathlib import Path

import ray
import ray.train
from ray import tune
from ray.tune.integration.ray_train import TuneReportCallback
from ray.tune.schedulers import ASHAScheduler

import tfscale.ray

RATES = (0.0003, 0.003, 0.03)


def train(config):
    import keras
    from digits_dataset import load_digits

    import tfscale

    dp = tfscale.DataParallel(global_batch=130, seed=1)
    with dp.scope():
        model = dp.prepare(keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(10)]))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(config["rate"], momentum=0.9), loss, metrics=["accuracy"])
    train_data, test_data = dp.dataset(load_digits("train"), shuffle=True), dp.dataset(load_digits("test"))
    model.fit(train_data, epochs=8, validation_data=test_data, verbose=0, callbacks=[tfscale.ray.Report()])


def trial(config):
    """Runs as a small process of its own beside the workers, which it asks Ray for."""
    trainer = tfscale.ray.Trainer(
        train,
        train_loop_config={"rate": config["rate"]},
        scaling_config=ray.train.ScalingConfig(num_workers=config["workers"]),
        run_config=ray.train.RunConfig(
            name=f"rate-{config['rate']}", storage_path=config["output"], callbacks=[TuneReportCallback()]
        ),
    )
    trainer.fit()


def main():
    parser = argparse.ArgumentParser(description="Tune digits on Ray.")
    parser.add_argument("--output", default="ray_output", help="where Ray keeps what was reported")
    parser.add_argument("--workers", type=int, default=1, help="of each trial")
    parser.add_argument("--at-a-time", type=int, default=2, help="trials: their workers need a CPU or GPU each")
    arguments = parser.parse_args()

    output = str(Path(arguments.output).resolve())
    space = {"rate": tune.grid_search(list(RATES)), "workers": arguments.workers, "output": f"{output}/trials"}
    tuner = tune.Tuner(
        # It only waits: no CPU, and some memory, because Tune wants something.
        tune.with_resources(trial, {"CPU": 0, "memory": 100e6}),
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="val_accuracy",
            mode="max",
            max_concurrent_trials=arguments.at_a_time,
            scheduler=ASHAScheduler(time_attr="epoch", max_t=8, grace_period=2),
        ),
        run_config=tune.RunConfig(name="digits", storage_path=output),
    )
    results = tuner.fit()
    for each in results:
        print(f"rate {each.config['rate']}: {each.metrics['val_accuracy']:.4f} after {each.metrics['epoch']} epochs")
    best = results.get_best_result()
    print(f"best: rate {best.config['rate']}, test accuracy {best.metrics['val_accuracy']:.4f}")


if __name__ == "__main__":
    main()

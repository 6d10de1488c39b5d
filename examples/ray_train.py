"""Train digits on the workers that Ray gives: `pip install 'tfscale[ray]'`, then `python examples/ray_train.py`.

One worker or two, whatever there is room for, also in the midst of the run: the result is the same. On a cluster of
hosts `--output` is a directory that all of them see, or one of a store.
"""

import argparse
from pathlib import Path

import ray.train

import tfscale.ray


def train(config):
    # Imported by workers only. Nothing below knows of Ray but `Report`.
    import keras
    from digits_dataset import load_digits

    import tfscale

    dp = tfscale.DataParallel(global_batch=130, seed=1)
    with dp.scope():
        model = dp.prepare(
            keras.Sequential(
                [
                    keras.Input((8, 8, 1)),
                    keras.layers.Conv2D(32, 3, activation="gelu"),
                    keras.layers.BatchNormalization(momentum=0.9),
                    keras.layers.Flatten(),
                    keras.layers.Dense(10),
                ]
            )
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.02, momentum=0.9), loss, metrics=["accuracy"])
    # A directory of the chief's host: Ray carries it to the next one, should it be another.
    callbacks = [tfscale.ray.Report(), *dp.callbacks("digits")]
    test_data = dp.dataset(load_digits("test"))
    train_data = dp.dataset(load_digits("train"), shuffle=True)
    model.fit(train_data, epochs=config["epochs"], validation_data=test_data, verbose=0, callbacks=callbacks)


def main():
    parser = argparse.ArgumentParser(description="Train digits on Ray.")
    parser.add_argument("--output", default="ray_output", help="where Ray keeps what was reported and saved")
    parser.add_argument("--epochs", type=int, default=4)
    arguments = parser.parse_args()

    trainer = tfscale.ray.Trainer(
        train,
        train_loop_config={"epochs": arguments.epochs},
        scaling_config=ray.train.ScalingConfig(num_workers=(1, 2)),
        run_config=ray.train.RunConfig(
            name="digits",
            storage_path=str(Path(arguments.output).resolve()),
            failure_config=ray.train.FailureConfig(max_failures=3),
        ),
    )
    metrics = trainer.fit().metrics
    print(f"epoch {metrics['epoch']}: test loss {metrics['val_loss']:.4f}, test accuracy {metrics['val_accuracy']:.4f}")


if __name__ == "__main__":
    main()

"""From a plain script to the decision: how many replicas, which batch, how much sooner; and did it come true?

    python examples/know_before_you_rent.py

Shows each command and what it answers, on one device; at the end the number that was advised is simulated. `build` and
`data` are the plain script: all that the commands need.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import keras
from sklearn.datasets import load_digits

import tfscale

BATCH = 16
NUM_TRAIN = 1500


def build(rate=0.02):
    model = keras.Sequential([keras.Input((64,)), *(keras.layers.Dense(64, "relu") for _ in range(2))])
    model.add(keras.layers.Dense(10))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(rate, momentum=0.9), loss)
    return model


def data():
    digits = load_digits()
    return (digits.data[:NUM_TRAIN] / 16).astype("float32"), digits.target[:NUM_TRAIN].astype("int32")


def train(replicas, directory, epochs):
    """What is rented for: the plain script on so many replicas, its recipe re-derived for them."""
    tfscale.simulate_replicas(replicas)
    recipe = tfscale.Recipe(examples_per_epoch=NUM_TRAIN, warmup_epochs=1)
    dp = tfscale.DataParallel(per_replica_batch=BATCH, recipe=recipe, seed=1)
    with dp.scope():
        model = dp.prepare(build())
        model.compile(dp.optimizer(model.optimizer), model.loss)
    noise = tfscale.callbacks.NoiseScale(every=1, path=Path(directory) / "noise.csv")
    model.fit(dp.dataset(data(), shuffle=True), epochs=epochs, verbose=0, callbacks=[noise])


def run(*command, shows=True):
    """Runs a command as a shell in this folder would, and returns its status and what it wrote."""
    if shows:
        print(f"\n$ {shlex.join(command)}", flush=True)
    here = Path(__file__).resolve().parent
    program = [sys.executable, *(("-m", "tfscale") if command[0] == "tfscale" else ())]
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([*program, *command[1:]], cwd=here, env=environ, capture_output=True, text=True, check=False)
    if shows:
        print(done.stdout, end="", flush=True)
    # 1 is an answer too: that the steps, or the batches, do not tell.
    if done.returncode not in (0, 1):
        sys.exit(f"{shlex.join(command)} ended with status {done.returncode}:\n{done.stderr[-3000:]}")
    return done.returncode, done.stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, default=Path("demo_output/rent"), help="folder of all that is measured")
    parser.add_argument("--small", action="store_true", help="fewer steps and trials, no branches: a test")
    parser.add_argument("--train", type=int, metavar="N", help="train on N replicas, and no more")
    parser.add_argument("--epochs", type=int, default=12, help="with --train (default: 12)")
    options = parser.parse_args()
    if options.train is not None:
        train(options.train, options.output, options.epochs)
        return
    output = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    script = [f"{Path(__file__).name}:{name}" for name in ("build", "data")]
    steps, target, trials, epochs = (60, "loss=1.0", 1, 4) if options.small else (300, "loss=0.2", 6, 12)
    batches = "16,64,256" if options.small else "16,64,256,1024"

    print("1. How much of the gradient is noise? One device, some steps.")
    noise = str(output / "noise.csv")
    run("tfscale", "measure", *script, "--steps", str(steps), "--global-batch", str(BATCH), "--output", noise)

    print("\n2. What would each number of replicas take? From noise alone it is a band.")
    foretell = ["tfscale", "plan", "--noise", noise, "--replicas", "1,2,4,8,16", "--link", "25gbit"]
    foretell += ["--price-per-hour", "2.5"]
    run(*foretell)
    if not options.small:
        print("\n3. Branches with grown batches, from a checkpoint of one run, tell it within a factor 2.")
        run(*foretell, "--calibrate", *script)

    print("\n4. A small study is the judge: the steps to the target at several batches, each at its best rate.")
    studied = ["--target", target, "--batches", batches, "--trials", str(trials), "--seeds", "1"]
    studied += ["--rule", "linear", "--reference-batch", str(BATCH), "--directory", str(output / "study")]
    status, _ = run("tfscale", "study", *script, *studied)
    if status == 0:
        foretell += ["--study", str(output / "study")]
        run(*foretell)
    else:
        print("The batches that were tried do not contain the critical one: the band is what is known.")

    advised = json.loads(run(*foretell, "--json", shows=False)[1])["advice"]["num_replicas"]
    number = min(8, max(2, advised))
    print(f"\n5. Did it come true? {advised} is advised; one replica, and {number} that are simulated here.")
    runs = [str(output / "runs" / str(each)) for each in (1, number)]
    for each, directory in zip((1, number), runs, strict=True):
        train_it = ["--train", str(each), "--epochs", str(epochs), "--output", directory]
        run("python", Path(__file__).name, *train_it)
    run("tfscale", "plan", "--check", *runs)


if __name__ == "__main__":
    main()

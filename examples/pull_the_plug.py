"""The pull-the-plug demonstration: workers are killed in the middle of training, and nothing is lost.

Two workers train on handwritten digits. One of them is killed with SIGKILL, then the chief; `tfscale launch` starts
both again each time. What they end with is compared with a run that nobody touched.

    python examples/pull_the_plug.py             about a minute and a half on two cores
    python examples/pull_the_plug.py --smoke     one kill, and fewer epochs

Exits with 1 when the runs do not end with the same weights.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SCRIPT = Path(__file__).resolve().parent / "digits_recovery.py"
# Epoch, step, worker.
PULLS = ((2, 4, 1), (3, 9, 0))
TOLERANCE = 1e-5


class Job:
    """`tfscale launch` on two workers, watched line by line."""

    def __init__(self, output, pulls, epochs):
        self._output = output
        self._epochs = epochs
        self._pulls = list(pulls)
        self._pids = {}
        self._pulled_s = None
        self.recoveries_s = []

    def run(self):
        """Runs to the end; returns the launcher's exit status."""
        command = [sys.executable, "-m", "tfscale", "launch", "--workers", "2", "--max-restarts", str(len(self._pulls))]
        command += [str(SCRIPT), "--output", str(self._output), "--epochs", str(self._epochs)]
        environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        with subprocess.Popen(
            command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process:
            try:
                for line in process.stdout:
                    self._hear(line.rstrip())
            finally:
                process.terminate()
        return process.returncode

    def _hear(self, line):
        if found := re.search(r"worker (\d+) is process (\d+)", line):
            self._pids[int(found[1])] = int(found[2])
        # The chief alone tells; what the launcher repeats of a worker that failed has no rank before it.
        step = re.match(r"\[0\] epoch (\d+), step +(\d+)", line)
        if step and self._pulled_s is not None:
            self.recoveries_s.append(time.monotonic() - self._pulled_s)
            self._pulled_s = None
            say(f"    {line}     <- {self.recoveries_s[-1]:.1f} s after the plug was pulled")
        elif re.match(r"\[0\] goes on in epoch|tfscale launch: (worker|restart)", line):
            say(f"    {re.sub(r' Its last lines:$', '', line)}")
        if step and self._pulls and (int(step[1]), int(step[2])) == self._pulls[0][:2]:
            *_, rank = self._pulls.pop(0)
            say(f"    {line}")
            who = f"worker {rank}, the chief" if rank == 0 else f"worker {rank}"
            say(f"--- pulling the plug of {who}: kill -9 {self._pids[rank]}")
            self._pulled_s = time.monotonic()
            os.kill(self._pids[rank], signal.SIGKILL)


def say(text):
    print(text, flush=True)


def read(output):
    with np.load(output / "result.npz") as file:
        return dict(file)


def main():
    parser = argparse.ArgumentParser(description="Kill workers in the middle of training; nothing is lost.")
    parser.add_argument("--smoke", action="store_true", help="one kill, and fewer epochs")
    is_smoke = parser.parse_args().smoke
    epochs, pulls = (2, PULLS[:1]) if is_smoke else (4, PULLS)
    with tempfile.TemporaryDirectory() as directory:
        alone, killed = Path(directory, "alone"), Path(directory, "killed")
        for output in (alone, killed):
            output.mkdir()
        say(f"1. Two workers train {epochs} epochs of 12 steps, and nobody touches them.")
        status = Job(alone, (), epochs).run()
        if status != 0:
            raise SystemExit(f"The workers ended with status {status}.")
        say("2. The same again, with a save after every 5th step, and somebody at the plug.")
        job = Job(killed, pulls, epochs)
        status = job.run()
        if status != 0 or len(job.recoveries_s) != len(pulls):
            raise SystemExit(f"The workers ended with status {status} after {len(job.recoveries_s)} recoveries.")
        return compare(read(alone), read(killed), job.recoveries_s)


def compare(alone, killed, recoveries_s):
    """Prints what both runs ended with; returns the exit status."""
    say("3. What they ended with:\n")
    say("   epoch      loss, untouched           loss, killed      test accuracy, both")
    for epoch in range(len(alone["loss"])):
        accuracies = " and ".join(f"{run['val_accuracy'][epoch]:.4f}" for run in (alone, killed))
        say(f"   {epoch + 1:5d}      {alone['loss'][epoch]:15.6f}      {killed['loss'][epoch]:18.6f}      {accuracies}")
    names = [name for name in alone if name.startswith("arr_")]
    difference = max(np.max(np.abs(killed[name] - alone[name])) / np.max(np.abs(alone[name])) for name in names)
    say(f"\n   Largest relative difference of any weight array: {difference:.1e}")
    say(f"   From the plug to the next step: {', '.join(f'{seconds:.1f} s' for seconds in recoveries_s)}")
    is_same = difference <= TOLERANCE
    say("   Nothing was lost." if is_same else "   THE RUNS DIFFER.")
    return int(not is_same)


if __name__ == "__main__":
    sys.exit(main())

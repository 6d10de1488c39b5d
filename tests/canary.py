"""Writes down what Keras and TensorFlow of this environment say, once tfscale was tried on them.

python -m tests.canary             compares, as `tfscale doctor` does
python -m tests.canary --rows 20   runs rows of the contract on two replicas besides
python -m tests.canary --add       adds their releases to tfscale/framework/releases.json
"""

import argparse
import json
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.version import Version

from tests.training import contract_run
from tests.training.contract_rows import shown_cases
from tfscale.framework import canary

_INSTALLED_AS = {"keras": ("keras",), "tensorflow": ("tensorflow", "tensorflow-cpu")}


def main():
    """Returns the status of the process: 1 where the code of an installed release is not known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--add", action="store_true")
    parser.add_argument("--rows", type=int, default=0)
    arguments = parser.parse_args()
    found = {package: _installed(names) for package, names in _INSTALLED_AS.items()}
    if arguments.add:
        _add(found)
    judged = [canary.judge_installed(package, release) for package, release in found.items()]
    for each in judged:
        print(each.describe() or f"{each.package} {each.release}: as it was tried")
    wrong = _wrong_rows(arguments.rows) if arguments.rows else []
    return 0 if all(each.like for each in judged) and not wrong else 1


def _wrong_rows(count):
    """Runs so many rows of the contract, from all of its tables; returns those that are not as on one replica."""
    names = list(shown_cases())
    chosen = [names[place * len(names) // count] for place in range(count)]
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory() as references:
        results = contract_run.run_on_replicas(chosen, 2, Path(directory), Path(references))
    cases, wrong = contract_run.load_cases(), []
    for name in chosen:
        beyond = results[name].error or contract_run.beyond_tolerance(cases[name], results[name])
        print(f"{name}: {'as on one replica' if results[name].differences and not beyond else beyond}")
        wrong += [name] if beyond or not results[name].differences else []
    return wrong


def _installed(names):
    for name in names:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    raise SystemExit(f"none of {names} is installed")


def _add(found):
    known = canary.releases()
    for package, release in found.items():
        known[package][release] = canary.contents(package)
        ordered = sorted(known[package], key=Version)
        known[package] = {each: known[package][each] for each in ordered}
    canary.RELEASES.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())

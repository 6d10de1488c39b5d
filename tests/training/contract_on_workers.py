"""Every case of the contract on workers of one replica each, which is more than the suite has time for.

python -m tests.training.contract_on_workers              on three workers; about half an hour on two cores
python -m tests.training.contract_on_workers -n 2 loop    on two, those with "loop" in their names
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.training import contract_run

# What it is about cannot be had in one job: who is interrupted starts all workers again (tests/recovery).
NOT_ON_WORKERS = frozenset(("interrupted, times seen",))
_TOGETHER = 40


def main():
    """Returns the exit status: 1 where a case is not as on one replica."""
    parser = argparse.ArgumentParser(prog="python -m tests.training.contract_on_workers", description=__doc__)
    parser.add_argument("-n", "--workers", type=int, default=3)
    parser.add_argument("words", nargs="*", help="parts of the names of cases")
    options = parser.parse_args()
    cases = contract_run.load_cases()
    names = [name for name in cases if name not in NOT_ON_WORKERS]
    names = [name for name in names if not options.words or any(word in name for word in options.words)]
    wrong = []
    for first in range(0, len(names), _TOGETHER):
        some = names[first : first + _TOGETHER]
        with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory() as references:
            results = contract_run.run_on_workers(some, options.workers, Path(directory), Path(references))
        for name in some:
            found = [_describe(cases[name], by_name[name]) for by_name in results]
            if any(found):
                wrong.append(name)
                print(f"{name}: {next(filter(None, found))}", flush=True)
        print(f"{first + len(some)} of {len(names)}, {len(wrong)} not as on one replica", flush=True)
    return int(bool(wrong) or not names)


def _describe(case, result):
    if result.error:
        return result.error.strip()[-500:]
    return str(contract_run.beyond_tolerance(case, result) or "") if result.differences else "nothing was compared"


if __name__ == "__main__":
    sys.exit(main())

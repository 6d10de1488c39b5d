import json
import subprocess
import sys

import pytest

from tests.repository import ROOT

# Of processor time.
MAX_IMPORT_S = 0.05
NOT_LOADED = ("absl", "keras", "numpy", "psutil", "pynvml", "tensorflow")

REPORT = """
import json, sys, time
started_s = time.process_time()
{code}
elapsed_s = time.process_time() - started_s
print(json.dumps([elapsed_s, sorted({{name.partition(".")[0] for name in sys.modules}})]))
"""


@pytest.mark.parametrize(
    "code",
    [
        "import tfscale",
        "import tfscale; tfscale.resolve_cluster({})",
        "import tfscale; tfscale.TfscaleError; dir(tfscale)",
        "import tfscale.cli; tfscale.cli.make_parser()",
        "import tfscale.launch.command",
        "import tfscale.doctor.command",
        "import tfscale.adopting.command",
        "import tfscale.reporting.command",
    ],
)
def test_import_loads_no_framework(code):
    _, modules = _run(code)
    assert [name for name in NOT_LOADED if name in modules] == []


def test_import_loads_one_file_of_tfscale_and_of_python_what_importing_needs_anyway():
    code = (
        "import sys, importlib, typing; before = set(sys.modules); import tfscale; print(*(set(sys.modules) - before))"
    )
    # Without `site`, whose own imports, those of an editable install among them, would hide ours.
    command = [sys.executable, "-S", "-c", code]
    assert subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60).stdout.split() == [b"tfscale"]


def test_import_is_free():
    # The best of several: the others measure what else the machine was doing.
    assert min(_run("import tfscale")[0] for _ in range(5)) < MAX_IMPORT_S


def _run(code):
    command = [sys.executable, "-c", REPORT.format(code=code)]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60).stdout
    return json.loads(output)

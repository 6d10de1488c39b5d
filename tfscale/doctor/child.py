"""What does TensorFlow say, when it may say nothing at all?"""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfscale.launch.process_group import process_group

_LOG_BYTES = 4000
# Beyond the meeting, which has a deadline of its own.
_MORE_S = 60.0


def ask_tensorflow(environ: Mapping[str, str], timeout_s: float) -> tuple[dict[str, Any], str]:
    """Runs the part that needs TensorFlow in a process of its own.

    Args:
        environ: Its environment. Without a cluster in it, only this machine is looked at.
        timeout_s: Seconds for the workers to meet; the process gets a minute more, and is then ended.

    Returns:
        What it reported, with an "error" where it did not come to its end; and the end of its output.
    """
    with tempfile.TemporaryDirectory() as directory, Path(directory, "log").open("w+b") as log:
        file = Path(directory, "report")
        argv = [sys.executable, "-m", "tfscale.doctor.tensorflow_child", str(file), str(timeout_s)]
        settings = {"TF_CPP_MIN_LOG_LEVEL": "2", **environ}
        with process_group(argv, env=settings, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process:
            try:
                status = process.wait(timeout_s + _MORE_S)
                problem = f"it ended with exit status {status}" if status else ""
            except subprocess.TimeoutExpired:
                problem = f"it did not end within {timeout_s + _MORE_S:g} s"
        log.seek(0)
        end = log.read().decode(errors="replace")[-_LOG_BYTES:]
        report = _read(file)
    if problem and "error" not in report and "timings" not in report:
        report["error"] = f"{problem} (it was at: {report.get('stage', 'its start')})"
    return report, end


def _read(file: Path) -> dict[str, Any]:
    report: dict[str, Any] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        with contextlib.suppress(ValueError):
            report |= json.loads(line)
    return report

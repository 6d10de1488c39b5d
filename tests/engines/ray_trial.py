"""A program that performs requests without TensorFlow: `python -m tests.engines.ray_trial REQUEST`."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
print("begun")
if request["how"] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if request["how"] == "fails":
    sys.exit("it says why")
content = {name: request[name] for name in ("how", "threads")}
Path(request["folder"], f"{request['name']}.json").write_text(json.dumps(content), encoding="utf-8")

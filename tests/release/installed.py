"""Does what was installed work? Run by the interpreter of an environment that has the wheel, in an empty directory.

python tests/release/installed.py 3.12.* 2.20.*
"""

import configparser
import importlib.metadata
import re
import runpy
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main(keras: str, tensorflow: str) -> None:
    """Fails where the package is not the installed one, the pair another, or README's first example does not run."""
    _is_installed()
    for package, wanted in (("keras", keras), ("tensorflow", tensorflow)):
        found = importlib.metadata.version(package)
        _demand(f"{found}.".startswith(wanted.removesuffix("*")), f"{package} {wanted}", found)
    _command("--version")
    _command("plan", "--examples", "50000", "--per-replica-batch", "64", "--replicas", "8", "--optimizer", "sgd")
    block = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[0]
    print(runpy.run_path(str(ROOT / "tests" / "cases_docs.py"))["run"](block)[-500:])
    print(f"README's first example ran with Keras {importlib.metadata.version('keras')}")


def _is_installed() -> None:
    started_s = time.perf_counter()
    import tfscale

    print(f"import tfscale: {1000 * (time.perf_counter() - started_s):.1f} ms")
    _demand("tensorflow" not in sys.modules, "an import without TensorFlow", "tensorflow is loaded")
    place = Path(tfscale.__file__)
    _demand(place.is_relative_to(sys.prefix), f"a package in {sys.prefix}", place)
    files = {path.as_posix() for path in importlib.metadata.files("tfscale") or ()}
    _demand({"tfscale/py.typed", "tfscale/framework/releases.json"} <= files, "data files", sorted(files))
    said = configparser.ConfigParser(interpolation=None)
    said.read(ROOT / "setup.cfg")
    _demand(tfscale.__version__ == said["metadata"]["version"], said["metadata"]["version"], tfscale.__version__)


def _command(*arguments: str) -> None:
    tfscale = Path(sys.prefix, "bin", "tfscale")
    print(subprocess.run([tfscale, *arguments], check=True, capture_output=True, text=True, timeout=120).stdout[:300])


def _demand(is_so: bool, wanted: object, received: object) -> None:
    if not is_so:
        raise SystemExit(f"expected {wanted}\nReceived: {received}")


if __name__ == "__main__":
    main(*sys.argv[1:])

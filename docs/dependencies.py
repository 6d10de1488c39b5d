"""What does an installation bring with it, how heavy is it, and under which licences? Writes `dependencies.md`.

python docs/dependencies.py .nox/release-3-15-2-21    an environment as `make test-release` leaves it: tfscale and what
                                                      it brings, and nothing else. pip says what an extra would add.

Sizes are those of the unpacked files, for the Python and the platform of that environment, without compiled ones.
"""

import argparse
import configparser
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "dependencies.md"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
# By extra the licence of what it alone asks for: PyTorch is a build for each device, of 200 MB to some GB.
NOT_WEIGHED = {"bench": "BSD-3-Clause"}
Metadata = dict[str, dict[str, Any]]
HEAD = """# What comes with it

Made by `python docs/dependencies.py` from what pip would install and what the metadata say:
Python {python}, Keras {keras}, TensorFlow {tensorflow}, {system}, {date}.

tfscale itself is {own:.1f} MB and has no compiled code. It is licensed under Apache-2.0, as TensorFlow and Keras are.
`import tfscale` loads none of what follows and takes {import_ms:.0f} ms of processor time (median of 20).
TensorFlow, which takes seconds, is loaded by the first name that needs it.

## Weight

Megabytes on disk, beside the {base:,.0f} MB that `pip install tfscale` alone brings.

| extra | for | adds packages | adds MB |
|---|---|---|---|
"""
PURPOSES = {
    "gpu": "NVIDIA GPUs: TensorFlow's CUDA and NCCL libraries, and what asks the driver",
    "study": "pictures of `tfscale study`",
    "sweep": "`tfscale sweep` with spaces in YAML, Optuna, pictures",
    "cli": "tables, progress and completion of the command line",
    "examples": "the scripts in `examples`",
    "ray": "`tfscale.ray`",
    "bench": "`make bench` with PyTorch beside it",
    "test": "`make test`",
    "docs": "`make docs`",
    "dev": "`make lint`, `make canary`, `make dist`",
}


def main() -> None:
    """Asks once for what is there, then once for each extra."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environment", type=Path)
    python = (parser.parse_args().environment / "bin" / "python").absolute()
    said = configparser.ConfigParser()
    said.read(ROOT / "setup.cfg")
    extras = said["options.extras_require"]
    found, base = _there(python)
    rows = []
    for extra in extras:
        if extra in NOT_WEIGHED:
            lines = [line for line in extras[extra].split("\n") if line and line not in extras["examples"]]
            found |= {plain_name(line): {"license_expression": NOT_WEIGHED[extra]} for line in lines}
            rows.append((extra, PURPOSES[extra], "", "not weighed"))
            continue
        added = _added(python, extra)
        found |= added
        weight = _megabytes(added, python)
        rows.append((extra, PURPOSES[extra], str(len(added)), f"{weight:,.{0 if weight >= 10 else 1}f}"))
    head = HEAD.format(
        python=platform.python_version(),
        keras=found["keras"]["version"],
        tensorflow=found["tensorflow"]["version"],
        system=f"{platform.system()} {platform.machine()}",
        date=time.strftime("%Y-%m-%d"),
        own=sum(path.stat().st_size for path in (ROOT / "tfscale").rglob("*.py")) / 1e6,
        base=base,
        import_ms=_import_ms(),
    )
    PAGE.write_text(head + _table(rows) + _licences(_direct(said), found))


def _import_ms() -> float:
    code = "import time; began_s = time.process_time(); import tfscale; print(1000 * (time.process_time() - began_s))"
    command = (sys.executable, "-S", "-c", code)
    return statistics.median(float(subprocess.check_output(command, cwd=ROOT)) for _ in range(20))


def _direct(said: configparser.ConfigParser) -> dict[str, list[str]]:
    """By name of a direct dependency, the extras that ask for it; "always" stands for none."""
    asked = [("always", said["options"]["install_requires"]), *said["options.extras_require"].items()]
    direct: dict[str, list[str]] = {}
    for extra, lines in asked:
        for line in filter(None, lines.split("\n")):
            named = direct.setdefault(plain_name(line), [])
            named += [] if extra in named else [extra]
    return direct


def plain_name(requirement: str) -> str:
    """Returns the name of a requirement as package indexes compare it, without extras and limits."""
    return canonicalize_name(Requirement(requirement).name)


def _there(python: Path) -> tuple[Metadata, float]:
    """What is installed, as metadata by name, and its megabytes; what a fresh environment has is left out."""
    inspected = json.loads(subprocess.check_output((*PIP, "--python", str(python), "inspect")))["installed"]
    packages = {plain_name(each["metadata"]["name"]): each["metadata"] for each in inspected}
    packages = {name: each for name, each in packages.items() if name not in {"pip", "tfscale"}}
    sites = {Path(each["metadata_location"]).parent for each in inspected}
    files = [path for site in sites for path in site.rglob("*") if path.suffix != ".pyc" and path.is_file()]
    own = [path for site in sites for each in ("pip", "tfscale") for path in (site / each).rglob("*") if path.is_file()]
    return packages, sum(path.stat().st_size for path in set(files) - set(own)) / 1e6


def _added(python: Path, extra: str) -> Metadata:
    """What pip would install besides, as metadata by name."""
    command = (*PIP, "--python", str(python), "install", "--dry-run", "--report", "-", f".[{extra}]")
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    packages = [each["metadata"] for each in json.loads(done.stdout)["install"]]
    return {plain_name(each["name"]): each for each in packages if plain_name(each["name"]) != "tfscale"}


def _megabytes(packages: Metadata, python: Path) -> float:
    pinned = [f"{name}=={each['version']}" for name, each in packages.items()]
    with tempfile.TemporaryDirectory() as folder:
        # Some packages are source only: pip builds their wheels.
        command = (*PIP, "--python", str(python), "wheel", "--no-deps", "--wheel-dir", folder, *pinned)
        subprocess.run(command, check=True)
        wheels = [zipfile.ZipFile(path) for path in Path(folder).glob("*.whl")]
        return sum(entry.file_size for wheel in wheels for entry in wheel.infolist()) / 1e6


def _licences(direct: dict[str, list[str]], found: Metadata) -> str:
    asked = [
        (name, ", ".join(direct[name]), licence_of(found[name]))
        for name in sorted(direct, key=lambda name: ("always" not in direct[name], name))
    ]
    others = [(name, licence_of(found[name])) for name in sorted(found.keys() - direct.keys())]
    return (
        "\n## Licences of what tfscale asks for\n\nThat of PyTorch is as its project says it; it was not fetched.\n\n"
        "| package | extra | licence |\n|---|---|---|\n"
        + _table(asked)
        + "\n## Licences of what these bring\n\n| package | licence |\n|---|---|\n"
        + _table(others)
    )


def licence_of(metadata: dict[str, Any]) -> str:
    """Returns what a package says of its licence: the expression, else the classifiers, else its words."""
    if metadata.get("license_expression"):
        return str(metadata["license_expression"])
    named = [each for each in metadata.get("classifier", ()) if "License ::" in each]
    short = [each.rpartition(" :: ")[2] for each in named if each != "License :: OSI Approved"]
    words = str(metadata.get("license") or "").strip().split("\n")[0][:60]
    return ", ".join(short) or words or "says none"


def _table(rows: list[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    main()

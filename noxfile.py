"""Other releases of Keras and TensorFlow, each in an environment of its own: `make canary`, `make test-release`.

With each pair: whether the code that tfscale stands on is that of a known release, and twenty rows of the contract.
With the oldest and the newest: the wheel as somebody installs it.
"""

from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
# The oldest and the newest that are supported, and those between.
PAIRS = (("3.12.*", "2.20.*"), ("3.13.*", "2.20.*"), ("3.14.*", "2.20.*"), ("3.15.*", "2.21.*"))


def _named(pairs):
    return nox.parametrize(
        ("keras", "tensorflow"), [nox.param(*pair, id="-".join(pair).replace(".*", "")) for pair in pairs]
    )


@nox.session
@_named(PAIRS)
def canary(session, keras, tensorflow):
    """One pair. The build of TensorFlow for CPUs is a third of the size; setup.cfg names the other."""
    session.install(f"keras=={keras}", f"tensorflow-cpu=={tensorflow}", "absl-py", "numpy", "packaging")
    session.install("--no-deps", "--editable", ".")
    session.install("hypothesis", "psutil", "pytest", "pytest-xdist", "scikit-learn")
    session.run("python", "-m", "tests.canary", "--rows", "20", *session.posargs)


@nox.session
@_named((PAIRS[0], PAIRS[-1]))
def release(session, keras, tensorflow):
    """The wheel of `dist` in an empty environment, with all that it asks for; then tests/release/installed.py."""
    [wheel] = Path("dist").glob("*.whl")
    script = Path("tests", "release", "installed.py").resolve()
    session.install(str(wheel), f"keras=={keras}", f"tensorflow=={tensorflow}")
    session.run("python", "-m", "pip", "check")
    session.chdir(session.create_tmp())
    session.run("python", str(script), keras, tensorflow, env={"PYTHONPATH": None})

"""`tfscale measure` on a user's script. Each function is called in a child."""

import contextlib
import io

from tfscale.cli import main

SCRIPT = "tests/trials/script.py"


def command(build, data, *more):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["measure", f"{SCRIPT}:{build}", f"{SCRIPT}:{data}", *more])
    return status, out.getvalue(), err.getvalue()

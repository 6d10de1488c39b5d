"""Is a directory that of the sweep that goes on in it?"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfscale.errors import StudyError


def check_identity(kind: str, directory: Path, identity: Mapping[str, Any]) -> None:
    """Notes in a new directory what it is for; refuses one that is for something else.

    Args:
        kind: `"sweep"`, by which the note is called.
        directory: Made where it is not there.
        identity: What must be the same when it goes on; can be written as JSON.

    Raises:
        StudyError: Naming the first difference, or when the note cannot be read.
    """
    own = json.loads(json.dumps(identity))
    path = directory / f"{kind}.json"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{kind}.json.part{uuid.uuid4().hex}")
        part.write_text(json.dumps(own, indent=1), encoding="utf-8")
        try:
            # Of several hosts that begin at once, one alone makes it, and the others compare.
            os.link(part, path)
        except FileExistsError:
            pass
        except OSError:
            # A file system without links, which several hosts cannot share anyway.
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    try:
        known = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise StudyError(
            f"The directory of a {kind} must have a {kind}.json that can be read.\nReceived: {path}: {error}."
        ) from error
    different = [name for name in own if known.get(name) != own[name]]
    if different:
        name = different[0]
        raise StudyError(
            f"A {kind} goes on with what it was begun with.\n"
            f"Received: {name}={json.dumps(own[name])[:300]}, and in {directory} it is "
            f"{json.dumps(known.get(name))[:300]}. Give each {kind} a directory of its own."
        )

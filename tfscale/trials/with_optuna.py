"""How is Optuna had, which need not be installed?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tfscale.errors import StudyError


def import_optuna(what: str, instead: str) -> Any:
    """Returns the package, which from now on says what goes wrong alone.

    Args:
        what: That needs it.
        instead: The way out where it is not to be installed.

    Raises:
        StudyError: When it is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise StudyError(
            f"The {what} 'optuna' needs Optuna.\nReceived: it is not installed. `pip install optuna`, or {instead}."
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def journal_storage(path: Path) -> Any:
    """Where several hosts keep one study of Optuna's."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    return JournalStorage(JournalFileBackend(str(path)))

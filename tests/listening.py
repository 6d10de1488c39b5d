"""What does the library log?"""

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def listening(logger: str = "tfscale", level: int = logging.NOTSET) -> Iterator[list[str]]:
    """Collects the messages that are logged meanwhile.

    Args:
        logger: By whom, or below whom.
        level: The least.

    Yields:
        The messages so far.
    """
    said: list[str] = []
    handler = logging.Handler(level)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger(logger).addHandler(handler)
    try:
        yield said
    finally:
        logging.getLogger(logger).removeHandler(handler)

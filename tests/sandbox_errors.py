"""Exceptions of a sandbox's controllers: each is a defect, although the controllers log it and go on."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOGGED = re.compile(r"^\w+ could not (?:process|reconcile) .*\nTraceback .*\n(?: .*\n)*.*", re.MULTILINE)


class _Errors(logging.Handler):
    """Keeps the messages of all records of ERROR and above."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(self.format(record))


@contextmanager
def recorded() -> Iterator[list[str]]:
    """Yield the list of exceptions of controllers in this process, with tracebacks, which grows during the block."""
    logger, errors = logging.getLogger("admission.sandbox.controllers.base"), _Errors()
    logger.addHandler(errors)
    try:
        yield errors.messages
    finally:
        logger.removeHandler(errors)


def logged(log: Path) -> list[str]:
    """Return the exceptions of controllers, with tracebacks, in the log of a process that runs a sandbox."""
    return _LOGGED.findall(log.read_text(errors="replace"))

"""Logging of a process to its standard error, as text or JSON, one line for each record.

A record may have fields beside its message, such as `workload` or `reason`: `log.info("...", extra=fields(...))`. The
text leaves them out, so that the message says all; in JSON they are members of the line's object.
"""

from __future__ import annotations

import json
import logging
import os
import select
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

LogLevel: TypeAlias = Literal["all", "debug", "info", "warning", "error"]
LogFormat: TypeAlias = Literal["text", "json"]

_OWN: Final = ("admission", "webhooks")
_TEXT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_TIME: Final = "%Y-%m-%dT%H:%M:%S%z"
_KEPT: Final = 2**20
"""Bytes of the log, at most, that wait for a reader who has stopped."""
_LOST: Final = "%d lines of the log are missing here: nobody read it"


@contextmanager
def log_to_stderr(level: LogLevel, form: LogFormat) -> Iterator[None]:
    """Log from `level` on to standard error, for the time of the block; after it logging is as it was before.

    Libraries tell of warnings and errors only, unless the level is `all`: that is everything.
    """
    handler = _Patient()
    handler.setFormatter(_Lines() if form == "json" else logging.Formatter(_TEXT, _TIME))
    root = logging.getLogger()
    before = {logger: logger.level for logger in (root, *map(logging.getLogger, _OWN))}
    set_log_level(level)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.flush()
        for logger, each in before.items():
            logger.setLevel(each)


def set_log_level(level: LogLevel) -> None:
    """Log from `level` on, wherever that goes."""
    own = logging.DEBUG if level == "all" else logging.getLevelNamesMapping()[level.upper()]
    for name in _OWN:
        logging.getLogger(name).setLevel(own)
    logging.getLogger().setLevel(own if level == "all" else max(own, logging.WARNING))


def fields(**named: Any) -> dict[str, Any]:
    """Facts of a record, by name, for `extra`: what JSON can hold, and no None."""
    return {"fields": {name: value for name, value in named.items() if value is not None}}


class _Patient(logging.StreamHandler[TextIO]):
    """Writes to standard error, and never waits for who reads it.

    A terminal after Ctrl-S, or a collector that is frozen, takes nothing once the pipe is full: a write would hold up
    the whole process. What cannot be written is kept, up to a limit, until the next line that can.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kept = bytearray()
        self._lost = 0
        """Lines that were beyond the limit."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._line(record)
        except Exception:  # noqa: BLE001  a line that cannot be made ends nobody
            self.handleError(record)
            return
        self.flush()
        if self._lost and len(self._kept) <= _KEPT // 2:
            told = {"name": __name__, "levelno": logging.WARNING, "levelname": "WARNING", "msg": _LOST % self._lost}
            self._kept += self._line(logging.makeLogRecord(told))
            self._lost = 0
        if self._lost or len(self._kept) + len(line) > _KEPT:
            self._lost += 1
        else:
            self._kept += line
        self.flush()

    def flush(self) -> None:
        """Write what can be written at once."""
        self.acquire()
        try:
            descriptor = self.stream.fileno()
            writable = select.poll()
            writable.register(descriptor, select.POLLOUT)
            while self._kept and writable.poll(0):
                del self._kept[: os.write(descriptor, self._kept[: select.PIPE_BUF])]
        except (OSError, ValueError, AttributeError):  # nobody reads it any more, its disk is full, or there is none
            self._kept.clear()
        finally:
            self.release()

    def _line(self, record: logging.LogRecord) -> bytes:
        return (self.format(record) + self.terminator).encode(errors="backslashreplace")


class _Lines(logging.Formatter):
    """A record as a JSON object without line breaks."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            **getattr(record, "fields", {}),
            "time": datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)  # in ASCII: a lone surrogate in some name must not cost the line

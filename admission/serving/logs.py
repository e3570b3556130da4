"""Logging of a process to standard error, as text or JSON, one line per record.

A record may have fields beside its message, such as `workload` or `reason`: `log.info("...", extra=fields(...))`. In
JSON they are members of the line's object. The text format omits them, so a message has to contain everything.
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
_BUFFER_BYTES: Final = 2**20
"""Maximum size of the buffer for log lines while the reader of standard error does not read."""
_LOST_MESSAGE: Final = "%d lines of the log are missing here, because standard error was not read"


@contextmanager
def log_to_stderr(level: LogLevel, form: LogFormat) -> Iterator[None]:
    """Log records of `level` and above to standard error during the block; then restore the former configuration.

    Libraries log warnings and errors only, unless the level is `all`.
    """
    handler = _NonBlockingHandler()
    handler.setFormatter(_JsonFormatter() if form == "json" else logging.Formatter(_TEXT, _TIME))
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
    """Set the level of all loggers, without changing the handlers."""
    own = logging.DEBUG if level == "all" else logging.getLevelNamesMapping()[level.upper()]
    for name in _OWN:
        logging.getLogger(name).setLevel(own)
    logging.getLogger().setLevel(own if level == "all" else max(own, logging.WARNING))


def fields(**named: Any) -> dict[str, Any]:
    """Return the `extra` argument for a record's structured fields; None values are dropped, others go into JSON."""
    return {"fields": {name: value for name, value in named.items() if value is not None}}


class _NonBlockingHandler(logging.StreamHandler[TextIO]):
    """Log handler that writes to standard error without blocking.

    A terminal after Ctrl-S or a frozen log collector stops reading; once the pipe is full, a write would block the
    whole process. Lines that cannot be written are buffered, up to a limit, and written with the next line.
    """

    def __init__(self) -> None:
        super().__init__()
        self._buffer = bytearray()
        self._lost = 0
        """Number of lines dropped because the buffer was full."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._line(record)
        except Exception:  # noqa: BLE001  a record that cannot be formatted must not raise in the code that logs
            self.handleError(record)
            return
        self.flush()
        if self._lost and len(self._buffer) <= _BUFFER_BYTES // 2:
            message = _LOST_MESSAGE % self._lost
            attributes = {"name": __name__, "levelno": logging.WARNING, "levelname": "WARNING", "msg": message}
            self._buffer += self._line(logging.makeLogRecord(attributes))
            self._lost = 0
        if self._lost or len(self._buffer) + len(line) > _BUFFER_BYTES:
            self._lost += 1
        else:
            self._buffer += line
        self.flush()

    def flush(self) -> None:
        """Write as much of the buffer as is possible without blocking."""
        self.acquire()
        try:
            descriptor = self.stream.fileno()
            writable = select.poll()
            writable.register(descriptor, select.POLLOUT)
            while self._buffer and writable.poll(0):
                del self._buffer[: os.write(descriptor, self._buffer[: select.PIPE_BUF])]
        except (OSError, ValueError, AttributeError):  # stderr is closed, missing, or its disk is full
            self._buffer.clear()
        finally:
            self.release()

    def _line(self, record: logging.LogRecord) -> bytes:
        return (self.format(record) + self.terminator).encode(errors="backslashreplace")


class _JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object on one line."""

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
        return json.dumps(line)  # ASCII, so that a lone surrogate in a name does not make encoding fail

"""Logging of a process to its standard error, as text or JSON, one line for each record.

A record may have fields beside its message, such as `workload` or `reason`: `log.info("...", extra=fields(...))`. The
text leaves them out, so that the message says all; in JSON they are members of the line's object.
"""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

LogLevel: TypeAlias = Literal["all", "debug", "info", "warning", "error"]
LogFormat: TypeAlias = Literal["text", "json"]

_OWN: Final = ("admission", "webhooks")
_TEXT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_TIME: Final = "%Y-%m-%dT%H:%M:%S%z"


@contextmanager
def log_to_stderr(level: LogLevel, form: LogFormat) -> Iterator[None]:
    """Log from `level` on to standard error, for the time of the block; after it logging is as it was before.

    Libraries tell of warnings and errors only, unless the level is `all`: that is everything.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines() if form == "json" else logging.Formatter(_TEXT, _TIME))
    root = logging.getLogger()
    before = {logger: logger.level for logger in (root, *map(logging.getLogger, _OWN))}
    set_log_level(level)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
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

"""What a process logs, to its standard error: text for people or JSON for programs, one line for each record.

A record may have fields beside its message, such as `workload` or `reason`: `log.info("...", extra=fields(...))`. The
text leaves them out, so that the message says all; in JSON they are members of the line's object.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

LogLevel: TypeAlias = Literal["all", "debug", "info", "warning", "error"]
LogFormat: TypeAlias = Literal["text", "json"]

_OWN: Final = ("admission", "webhooks")
_TEXT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_TIME: Final = "%Y-%m-%dT%H:%M:%S%z"


def log_to_stderr(level: LogLevel, form: LogFormat) -> None:
    """Log from `level` on. Libraries tell of warnings and errors only, unless the level is `all`: that is everything.

    To be called once, before anything is logged.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines() if form == "json" else logging.Formatter(_TEXT, _TIME))
    own = logging.DEBUG if level == "all" else logging.getLevelNamesMapping()[level.upper()]
    for name in _OWN:
        logging.getLogger(name).setLevel(own)
    root = logging.getLogger()
    root.setLevel(own if level == "all" else max(own, logging.WARNING))
    root.addHandler(handler)


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

"""Log lines about changes of queue objects: author, changed fields, reason."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final

from admission.apimachinery.patches import differences
from admission.model.names import NOTED_BY_OTHERS
from admission.model.text import clean
from admission.serving.logs import fields

if TYPE_CHECKING:
    from admission.store.audit_log import Author
    from admission.store.records import Document

log = logging.getLogger(__name__)

_MAX_LENGTH: Final = 1000
"""Characters of a line."""
_MAX_PART: Final = 200
"""Characters of the author, and of the reason."""
_MAX_VALUE: Final = 60
"""Characters of the old or new value of a field."""
_IGNORED_ANNOTATIONS: Final = NOTED_BY_OTHERS | {"sluice.dev/change-reason"}
"""Annotations that repeat what the line contains anyway."""
_MAX_CHANGES: Final = 3
"""Changed fields that are listed; further ones are counted."""


def log_change(old: Document | None, new: Document | None, author: Author) -> None:
    """Log a committed write. `old` and `new` are rows of the object; None: it did not exist, or was deleted."""
    row = new or old
    if row is None or not log.isEnabledFor(logging.INFO):
        return
    operation = "created" if old is None else "deleted" if new is None else "changed"
    name = f"{row['namespace']}/{row['name']}" if row["namespace"] else row["name"]
    changes = (
        [] if old is None or new is None else [_formatted(one) for one in differences(_document(old), _document(new))]
    )
    more = [f"{len(changes) - _MAX_CHANGES} more"] if len(changes) > _MAX_CHANGES else []
    user, reason = (clean(text, longest=_MAX_PART) for text in (author.name, author.reason))
    text = f"{user} {operation} {row['kind']} {name}"
    if changes:
        text += f": {', '.join(changes[:_MAX_CHANGES] + more)}"
    if reason:
        text += f"; reason: {reason}"
    extra = fields(kind=row["kind"], name=name, operation=operation, user=user, reason=reason or None)
    log.info("%s", clean(text, longest=_MAX_LENGTH), extra=extra)


def _document(row: Document) -> Document:
    annotations = {name: value for name, value in row["annotations"].items() if name not in _IGNORED_ANNOTATIONS}
    return {"labels": row["labels"], "annotations": annotations, **row["content"]}


def _formatted(change: dict[str, Any]) -> str:
    before, after = (_value(change[side]) if side in change else "none" for side in ("before", "after"))
    return f"{change['path']} {before} -> {after}"


def _value(value: Any) -> str:
    return clean(value if isinstance(value, str) else json.dumps(value), longest=_MAX_VALUE)

"""Log lines about changes of queue objects: author, fields, reason."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final

from admission.apimachinery.differences import differences
from admission.model.names import NOTED_BY_OTHERS
from admission.model.text import clean
from admission.serving.logs import fields

if TYPE_CHECKING:
    from admission.store.audit_log import Author
    from admission.store.records import Document

log = logging.getLogger(__name__)

_LONGEST: Final = 1000
_LONGEST_PART: Final = 200
"""Characters of a line, and of its author and his reason."""
_LONGEST_VALUE: Final = 60
_NOT_TOLD: Final = NOTED_BY_OTHERS | {"sluice.dev/change-reason"}
"""Annotations that say what the line says anyway."""
_SHOWN: Final = 3
"""Changed fields that are named; further ones are counted."""


def tell_of_change(old: Document | None, new: Document | None, author: Author) -> None:
    """After a write was committed. `old` and `new` are rows of the object; None: it was not there, is there no more."""
    row = new or old
    if row is None or not log.isEnabledFor(logging.INFO):
        return
    done = "created" if old is None else "deleted" if new is None else "changed"
    name = f"{row['namespace']}/{row['name']}" if row["namespace"] else row["name"]
    changes = [] if old is None or new is None else [_shown(one) for one in differences(_written(old), _written(new))]
    more = [f"{len(changes) - _SHOWN} more"] if len(changes) > _SHOWN else []
    user, reason = (clean(text, longest=_LONGEST_PART) for text in (author.name, author.reason))
    text = f"{user} {done} {row['kind']} {name}"
    if changes:
        text += f": {', '.join(changes[:_SHOWN] + more)}"
    if reason:
        text += f"; reason: {reason}"
    facts = fields(kind=row["kind"], name=name, operation=done, user=user, reason=reason or None)
    log.info("%s", clean(text, longest=_LONGEST), extra=facts)


def _written(row: Document) -> Document:
    annotations = {name: value for name, value in row["annotations"].items() if name not in _NOT_TOLD}
    return {"labels": row["labels"], "annotations": annotations, **row["content"]}


def _shown(change: dict[str, Any]) -> str:
    before, after = (_value(change[side]) if side in change else "none" for side in ("before", "after"))
    return f"{change['path']} {before} -> {after}"


def _value(value: Any) -> str:
    return clean(value if isinstance(value, str) else json.dumps(value), longest=_LONGEST_VALUE)

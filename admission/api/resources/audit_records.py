"""The read-only resource `auditrecords`: records of all writes through the API, the newest first."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from admission.api.documents.representation import Representation
from admission.api.errors import BadRequest
from admission.api.http.responses import reply
from admission.api.registry import API_VERSION, AUDIT_RECORDS
from admission.apimachinery.errors import InvalidSelector
from admission.apimachinery.selectors import parse_field_selector
from admission.store.audit_log import AuditLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from admission.api.http.responses import Document
    from admission.store.audit_log import AuditRecord
    from admission.store.store import Store

_PAGE, _LARGEST_PAGE = 500, 1000


class AuditRecords:
    """Handler of the only verb, list. `now` returns the Unix time (s)."""

    def __init__(self, store: Store, *, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now

    async def list(self, request: web.Request) -> web.Response:
        """Return a page, of 500 records by default.

        `fieldSelector` accepts user, verb, and kind, namespace and name of the object. Raises BadRequest.
        """
        form = Representation.of(request, AUDIT_RECORDS)
        limit = _number(request, "limit") or _PAGE
        page = await self._store.audit.list(
            _filters(request.query.get("fieldSelector", "")),
            limit=min(limit, _LARGEST_PAGE),
            before=_number(request, "continue"),
        )
        metadata: Document = {"resourceVersion": str(page.revision)}
        if page.before is not None:
            metadata |= {"continue": str(page.before), "remainingItemCount": page.remaining}
        return reply(form.list(metadata, [audit_document(record) for record in page.records], now=self._now()))


def audit_document(record: AuditRecord) -> Document:
    """Return the document of a record."""
    at = datetime.fromtimestamp(record.at, UTC)
    return {
        "apiVersion": API_VERSION,
        "kind": "AuditRecord",
        "metadata": {
            "name": str(record.id),
            "resourceVersion": str(record.revision),
            "creationTimestamp": f"{at:%Y-%m-%dT%H:%M:%SZ}",
        },
        "at": f"{at:%Y-%m-%dT%H:%M:%S.%fZ}",
        "user": record.user,
        "groups": list(record.groups),
        "source": record.source,
        "verb": record.verb,
        "object": {"kind": record.kind, "namespace": record.namespace, "name": record.name},
        "reason": record.reason,
        "before": record.before,
        "after": record.after,
    }


def _filters(selector: str) -> dict[str, str]:
    try:
        terms = parse_field_selector(selector, AuditLog.FIELDS)
    except InvalidSelector as error:
        raise BadRequest(f"fieldSelector: {error}") from error
    if unequal := [term.path for term in terms if not term.equal]:
        raise BadRequest(f"fieldSelector: {unequal[0]} can be selected by = only")
    return {term.path: term.value for term in terms}


def _number(request: web.Request, option: str) -> int | None:
    text = request.query.get(option, "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise BadRequest(f'{option}: "{text}" is not a number, or not one of an earlier list')
    return int(text)

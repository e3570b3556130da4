"""The leader's state as each replica reports it: its own state if it leads, else the annotations of the leader's Lease.

While the API server does not answer the Lease cannot be updated; each replica detects that by itself.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from admission.api.resources.leader_view import LastAudit
from admission.model import sentences

if TYPE_CHECKING:
    from admission.cluster.lease import LeaderElector
    from admission.controller.controller import Controller
    from admission.store.store import Store

STANDSTILL: Final = "sluice.dev/standstill"
"""Annotation of the Lease: the message that says why no decisions are made; empty if they are."""
LAST_AUDIT: Final = "sluice.dev/last-audit"
"""Annotation of the Lease with the last audit, as JSON: `{"at": 1730000000.0, "differences": {"NotStarted": 1}}`."""


class LeaderReport:
    """Report of the leader's state by one replica; `elector` is None if there is only one replica."""

    def __init__(self, store: Store, controller: Controller, elector: LeaderElector | None) -> None:
        self._store = store
        self._controller = controller
        self._elector = elector
        if elector is not None:
            elector.report = self._annotations

    def standstill(self) -> str:
        """Return a message that says why the leader makes no decisions; empty if it does, or if that is unknown."""
        if (own := self._own_standstill()) or self._elector is None:
            return own
        return self._elector.reported.get(STANDSTILL, "")

    def last_audit(self) -> LastAudit | None:
        """Return the result of the leader's last audit; None if there was none since it became leader."""
        auditor = self._controller.auditor
        if self._elector is None or self._elector.leads():
            return None if auditor.last_audit_at is None else LastAudit(auditor.last_audit_at, dict(auditor.last))
        return _read(self._elector.reported.get(LAST_AUDIT, ""))

    def _own_standstill(self) -> str:
        elected = self._elector is not None and self._elector.leads()
        if elected and self._controller.engine() is None and self._store.write_failure is not None:
            return sentences.standstill(silent=False, unwritable=True)  # elected, but it could not begin to lead
        return self._controller.standstill()

    def _annotations(self) -> dict[str, str]:
        found = self._controller.auditor
        text = "" if found.last_audit_at is None else json.dumps({"at": found.last_audit_at, "differences": found.last})
        return {STANDSTILL: self._own_standstill(), LAST_AUDIT: text}


def _read(text: str) -> LastAudit | None:
    """Parse the annotation, which may be from another version or from any user who may write the Lease."""
    try:
        found = json.loads(text)
        return LastAudit(float(found["at"]), {str(name): int(number) for name, number in found["differences"].items()})
    except (ValueError, TypeError, KeyError, AttributeError):
        return None

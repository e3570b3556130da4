"""What every replica tells of the one that leads: its own state if it leads, else what that one reports on the Lease.

While the API server is silent nobody keeps the Lease; each replica notices that by itself.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from admission.api.resources.leader_view import LastAudit
from admission.model import sentences

if TYPE_CHECKING:
    from admission.cluster.lease import Elector
    from admission.controller.controller import Controller
    from admission.store.store import Store

STANDSTILL: Final = "sluice.dev/standstill"
"""Annotation of the Lease: the sentence that says why nothing is decided."""
LAST_AUDIT: Final = "sluice.dev/last-audit"
"""Annotation of the Lease: Unix time of the last audit, and how many differences it has found by problem, as JSON."""


class LeaderReport:
    """Of one replica. Without an `elector` there is no other."""

    def __init__(self, store: Store, controller: Controller, elector: Elector | None) -> None:
        self._store = store
        self._controller = controller
        self._elector = elector
        if elector is not None:
            elector.report = self._annotations

    def standstill(self) -> str:
        """What keeps Sluice from deciding, as a sentence; empty: nothing does, as far as is known."""
        if (own := self._own_standstill()) or self._elector is None:
            return own
        return self._elector.reported.get(STANDSTILL, "")

    def last_audit(self) -> LastAudit | None:
        """What the leader's last audit has found; None: there was none since it leads."""
        auditor = self._controller.auditor
        if self._elector is None or self._elector.leads():
            return None if auditor.looked_at is None else LastAudit(auditor.looked_at, dict(auditor.last))
        return _read(self._elector.reported.get(LAST_AUDIT, ""))

    def _own_standstill(self) -> str:
        elected = self._elector is not None and self._elector.leads()
        if elected and self._controller.engine() is None and self._store.write_failure is not None:
            return sentences.standstill(silent=False, unwritable=True)  # it cannot even begin to lead
        return self._controller.standstill()

    def _annotations(self) -> dict[str, str]:
        found = self._controller.auditor
        text = "" if found.looked_at is None else json.dumps({"at": found.looked_at, "differences": found.last})
        return {STANDSTILL: self._own_standstill(), LAST_AUDIT: text}


def _read(text: str) -> LastAudit | None:
    """What was written by another replica, perhaps of another version, or by anybody who may write the Lease."""
    try:
        found = json.loads(text)
        return LastAudit(float(found["at"]), {str(name): int(number) for name, number in found["differences"].items()})
    except (ValueError, TypeError, KeyError, AttributeError):
        return None

"""View of the leader that every replica has: why it makes no decisions, and the result of its last audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from admission.api.errors import NotLeading

if TYPE_CHECKING:
    from collections.abc import Mapping

LEADER: Final = "leader"
"""`field` of the cause in the Status whose message is the identity of the leading replica."""


class LastAudit(NamedTuple):
    """Result of the last comparison of database, cluster and memory."""

    at: float
    """Unix time (s)."""
    differences: Mapping[str, int]
    """Number of differences by problem; empty: all agree."""


class LeaderView(Protocol):
    """What is known of the leader, which may be this process or another one."""

    def standstill(self) -> str:
        """Return a message that says why Sluice makes no decisions; empty: it does, as far as is known."""

    def last_audit(self) -> LastAudit | None:
        """Return the last audit; None if there was none since the start of the leader, or no replica leads."""


class NoLeader:
    """For an API without a controller: nothing is known of a leader."""

    def standstill(self) -> str:
        """Return an empty message."""
        return ""

    def last_audit(self) -> LastAudit | None:
        """Return None."""
        return None


def not_leading(verb: str, holder: str) -> NotLeading:
    """Return the error for a request that only the leader, `holder`, can serve; `verb` says what it would do."""
    only = f"only the leading replica can {verb}, and this one does not lead"
    if not holder:
        return NotLeading(f"{only}: no replica leads yet; see its log for what it waits for")
    return NotLeading(
        f'{only}: "{holder}" (host, process, random number) leads; try again, as a Service passes each connection to '
        "any replica, or connect to that host directly, by --server or a forwarded port",
        causes=[{"reason": "NotLeading", "field": LEADER, "message": holder}],
    )

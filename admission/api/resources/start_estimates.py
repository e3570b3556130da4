"""Estimated start of pending workloads, as shown in responses: a median and a bound, or why there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from admission.apimachinery.tables import spoken

if TYPE_CHECKING:
    from admission.api.http.responses import Document


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """An estimate as quantiles. Times are Unix times (s)."""

    made_at: float
    p50: float
    """Half of the workloads with such an estimate start before this time."""
    p90: float
    """Nine of ten workloads with such an estimate start before this time."""
    share_held: float | None
    """Share of past estimates for which the workload had started by p90; None while there are too few."""

    def document(self) -> Document:
        """Return the document (`estimatedStart`)."""
        document: Document = {"p50": _time(self.p50), "p90": _time(self.p90), "madeAt": _time(self.made_at)}
        return document if self.share_held is None else {**document, "shareHeld": round(self.share_held, 3)}

    def text(self, now: float) -> str:
        """Return the estimate in words: `probably in 17 min, nine of ten within 2 h 10 min`."""
        half, most = self.p50 - now, self.p90 - now
        if most <= 0:
            return "late: nine of ten with its estimate would have started"
        soon = f"probably in {spoken(half)}" if half > 0 else "probably soon"
        held = "" if self.share_held is None else f" ({self.share_held:.0%} of past estimates held)"
        return f"{soon}, nine of ten within {spoken(most)}{held}"


@dataclass(frozen=True, slots=True)
class NoEstimate:
    """There is no estimate for a workload."""

    why: str = ""
    """Why there is none, and when there will be, as a sentence; empty: there is nothing to say about it."""


EstimateOf: TypeAlias = Callable[[str], StartEstimate | NoEstimate]
"""Returns the estimate for a pending workload's uid."""


def no_estimates(_: str) -> NoEstimate:
    """Return NoEstimate: for an API without estimates."""
    return NoEstimate()


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

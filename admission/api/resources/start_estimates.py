"""Estimated start of pending workloads, as shown in responses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

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


EstimateOf: TypeAlias = Callable[[str], StartEstimate | None]
"""Returns the estimate for a workload's uid; None if there is none."""


def no_estimates(_: str) -> None:
    """Return None: for an API without estimates."""


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

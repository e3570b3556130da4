"""When waiting workloads are expected to start, as answers show it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from admission.api.http.responses import Document


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """Times are seconds since the epoch."""

    made_at: float
    p50: float
    """Half of the workloads with such an estimate start before ..."""
    p90: float
    """... and nine of ten before this."""
    share_held: float | None
    """The share of past estimates where the workload had started by p90; None while there are too few."""

    def document(self) -> Document:
        """As JSON."""
        document: Document = {"p50": _time(self.p50), "p90": _time(self.p90), "madeAt": _time(self.made_at)}
        return document if self.share_held is None else {**document, "shareHeld": round(self.share_held, 3)}


EstimateOf: TypeAlias = Callable[[str], StartEstimate | None]
"""The estimate for a workload by uid; None if there is none."""


def no_estimates(_: str) -> None:
    """Where nothing estimates."""


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

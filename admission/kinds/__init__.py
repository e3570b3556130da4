"""One adapter for each Kubernetes kind that can be queued."""

from __future__ import annotations

from admission.kinds.base import Conventions, Kind, Object, Observed, Outcome
from admission.kinds.job import JobKind
from admission.kinds.limits import NamespaceContext

__all__ = ["Conventions", "JobKind", "Kind", "NamespaceContext", "Object", "Observed", "Outcome", "all_kinds"]

_ADAPTERS = (JobKind,)


def all_kinds(*, kueue_labels: bool = True) -> tuple[Kind, ...]:
    """An adapter for each kind. `kueue_labels` says whether Kueue's labels count beside our own."""
    owners = frozenset((adapter.group, adapter.kind) for adapter in _ADAPTERS)
    conventions = Conventions.of(kueue_labels=kueue_labels, queued_owners=owners)
    return tuple(adapter(conventions) for adapter in _ADAPTERS)

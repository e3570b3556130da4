"""One adapter for each Kubernetes kind that can be queued."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.kinds.base import Conventions, Kind, Object, Observed, Outcome
from admission.kinds.job import JobKind
from admission.kinds.limits import NamespaceContext
from admission.kinds.registry import Kinds

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Conventions", "JobKind", "Kind", "Kinds", "NamespaceContext", "Object", "Observed", "Outcome", "all_kinds"]

_ADAPTERS = (JobKind,)


def all_kinds(*, kueue_labels: bool = True, excluded_namespaces: Iterable[str] = ("kube-system",)) -> Kinds:
    """The registry of all kinds. `kueue_labels` says whether Kueue's labels count beside our own.

    In `excluded_namespaces` nothing is queued.
    """
    conventions = Conventions.of(kueue_labels=kueue_labels, excluded_namespaces=excluded_namespaces)
    return Kinds(adapter(conventions) for adapter in _ADAPTERS)

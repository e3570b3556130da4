"""What Kubernetes accepts as a name, a label key and a label value (apimachinery's `util/validation`)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which `kubectl apply` notes for itself what it has written."""

STOP_REASON: Final = "sluice.dev/stop-reason"
"""The annotation in which Sluice notes why a queue was stopped, while it is. What a manifest says of it is not read."""

NOTED_BY_OTHERS: Final = frozenset({LAST_APPLIED, STOP_REASON})
"""Annotations that are not of the manifest that somebody wrote."""

_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_LABEL: Final = re.compile(_LABEL)
_DNS_SUBDOMAIN: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_NAME_PART: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def is_dns_label(text: str) -> bool:
    """Whether a namespace may be called so."""
    return len(text) <= 63 and _DNS_LABEL.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def is_dns_subdomain(text: str) -> bool:
    """Whether an object may be called so."""
    return len(text) <= 253 and _DNS_SUBDOMAIN.fullmatch(text) is not None


def is_qualified_name(text: str) -> bool:
    """Whether this can be a label key, an annotation key or a resource name: `[prefix/]name`."""
    prefix, slash, name = text.rpartition("/")
    if slash and not is_dns_subdomain(prefix):
        return False
    return len(name) <= 63 and _NAME_PART.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """Whether a label may have this value; the empty one is fine."""
    return len(text) <= 63 and (not text or _NAME_PART.fullmatch(text) is not None)


def listed(names: Sequence[str], *, limit: int = 10) -> str:
    """`a, b and 3 more`: the first names, for a sentence of bounded length."""
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")

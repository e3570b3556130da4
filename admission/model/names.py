"""Syntax of names, label keys and label values in Kubernetes (apimachinery's `util/validation`)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which `kubectl apply` stores the manifest that it applied last."""

STOP_REASON: Final = "sluice.dev/stop-reason"
"""The annotation in which Sluice stores why a queue is stopped. Its value in a manifest is ignored."""

NOTED_BY_OTHERS: Final = frozenset({LAST_APPLIED, STOP_REASON})
"""Annotations that are not of the manifest that somebody wrote."""

_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_LABEL: Final = re.compile(_LABEL)
_DNS_SUBDOMAIN: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_NAME_PART: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def is_dns_label(text: str) -> bool:
    """Whether the text is a valid namespace name (RFC 1123 label)."""
    return len(text) <= 63 and _DNS_LABEL.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def is_dns_subdomain(text: str) -> bool:
    """Whether the text is a valid object name (RFC 1123 subdomain)."""
    return len(text) <= 253 and _DNS_SUBDOMAIN.fullmatch(text) is not None


def is_qualified_name(text: str) -> bool:
    """Whether the text is a valid label key, annotation key or resource name: `[prefix/]name`."""
    prefix, slash, name = text.rpartition("/")
    if slash and not is_dns_subdomain(prefix):
        return False
    return len(name) <= 63 and _NAME_PART.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """Whether the text is a valid label value; the empty text is one."""
    return len(text) <= 63 and (not text or _NAME_PART.fullmatch(text) is not None)


def listed(names: Sequence[str], *, limit: int = 10) -> str:
    """Return the first `limit` names as text for a message of bounded length: `a, b and 3 more`."""
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")

"""Kueue's annotation `kueue.x-k8s.io/admission-gated-by`: controllers that keep an object out of the queue.

The value lists controllers. Each removes its own name once it has done its part. Names can be set only at creation.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from admission.model import names
from admission.model.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_LONGEST: Final = 63
"""Maximum length of a controller's name, in characters."""
_REST: Final = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+;=:]+")
"""The part of a name after its domain: what Kubernetes accepts there in `spec.managedBy` of a Job."""


def gates_of(annotations: Mapping[str, str] | None, key: str) -> list[str]:
    """Return the controllers that the annotation names; empty if it is absent, or `key` is empty (not read)."""
    text = ((annotations or {}).get(key) or "").strip()
    return [name.strip() for name in text.split(",")] if text else []


def joined(gates: Iterable[str]) -> str:
    """Return the annotation's value for these controllers, without duplicates."""
    return ",".join(dict.fromkeys(gates))


def gates_fault(gates: list[str]) -> str:
    """Return what is wrong with these names, as a message; empty: nothing."""
    for name in gates:
        domain, slash, rest = name.partition("/")
        if not (slash and names.is_dns_subdomain(domain) and _REST.fullmatch(rest) and len(name) <= _LONGEST):
            shown = clean(name, longest=100)
            return (
                f'must be names of controllers such as example.com/quota, {_LONGEST} characters at most, not "{shown}"'
            )
    return "names a controller twice" if len(set(gates)) < len(gates) else ""

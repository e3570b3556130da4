"""Kueue's annotation by which controllers keep an object out of the queue until each of them has done its part.

It names them, and each takes its own name off again. They are named when the object is created, and not later.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from admission.model import names
from admission.model.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_LONGEST: Final = 63
"""Characters of a name."""
_REST: Final = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+;=:]+")
"""What stands behind the domain: what Kubernetes accepts there in `spec.managedBy` of a Job."""


def gates_of(annotations: Mapping[str, str] | None, key: str) -> list[str]:
    """The controllers named by this annotation; none where that is not there, or its key is empty: not read."""
    text = ((annotations or {}).get(key) or "").strip()
    return [name.strip() for name in text.split(",")] if text else []


def joined(gates: Iterable[str]) -> str:
    """The value that names each of them once."""
    return ",".join(dict.fromkeys(gates))


def gates_fault(gates: list[str]) -> str:
    """What is wrong in an annotation; empty: nothing is."""
    for name in gates:
        domain, slash, rest = name.partition("/")
        if not (slash and names.is_dns_subdomain(domain) and _REST.fullmatch(rest) and len(name) <= _LONGEST):
            told = clean(name, longest=100)
            return (
                f'must be names of controllers such as example.com/quota, {_LONGEST} characters at most, not "{told}"'
            )
    return "names a controller twice" if len(set(gates)) < len(gates) else ""

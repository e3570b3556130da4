"""Replace `ssl.create_default_context` by Python 3.13's, whose contexts refuse what RFC 5280 does not allow.

Imported on all releases before modules that make contexts, so that a client of ours which refuses authorities that
Kubernetes, PostgreSQL and browsers accept fails its tests on each of them.
"""

from __future__ import annotations

import ssl
from typing import Any

_default = ssl.create_default_context


def _strict(*arguments: Any, **options: Any) -> ssl.SSLContext:
    context = _default(*arguments, **options)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
    return context


ssl.create_default_context = _strict

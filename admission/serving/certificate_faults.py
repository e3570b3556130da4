"""What to do about a server's certificate that a client does not trust."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_OUT_OF_ITS_TIME: Final = (9, 10)
"""OpenSSL's codes X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""


def certificate_remedy(error: Exception, otherwise: str) -> str:
    """Return the remedy for a failed verification: about clock and lifetime if these are the cause, else `otherwise`.

    The clock comes first: one that is wrong makes good certificates invalid, and other faults are harder to see then.
    """
    if getattr(error, "verify_code", None) not in _OUT_OF_ITS_TIME:
        return otherwise
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"check this machine's clock, which shows {now}; if it is right, renew the certificate or its authority's"

"""What Sluice is to an OpenID Connect issuer, and how it understands the issuer's claims."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

Algorithm: TypeAlias = Literal["RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512"]
"""Signatures by a key pair. Never `none`, and none by a shared secret: whoever knows our key could sign, too."""


@dataclass(frozen=True, slots=True)
class OidcClient:
    """What Sluice is to one issuer."""

    issuer: str
    client_id: str
    url: str
    """Where browsers have the dashboard, without a slash at the end."""
    session_seconds: float
    scopes: tuple[str, ...] = ("openid",)
    client_secret_file: Path | None = None
    ca_file: Path | None = None
    """Who has signed the issuer's certificate; None: one of the system's authorities."""
    username_claim: str = "sub"
    username_prefix: str = ""
    groups_claim: str = ""
    groups_prefix: str = ""
    required_claims: tuple[tuple[str, str], ...] = ()
    algorithms: tuple[Algorithm, ...] = ("RS256",)

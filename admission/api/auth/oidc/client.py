"""Configuration of Sluice as a client of an OpenID Connect issuer, with the mapping of claims to users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

Algorithm: TypeAlias = Literal["RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512"]
"""Signature algorithms with a key pair.

Never `none`, nor HMAC (HS256 ...): its key is the client secret, and a holder of that could sign ID tokens, too.
"""


@dataclass(frozen=True, slots=True)
class OidcClient:
    """Registration of Sluice at one issuer, and the claims that become user and groups."""

    issuer: str
    """URL of the issuer, exactly as in its metadata and in the claim `iss`."""
    client_id: str
    url: str
    """URL under which browsers open the dashboard, without a trailing slash."""
    session_seconds: float
    """Longest life of a session that is opened by this issuer."""
    scopes: tuple[str, ...] = ("openid",)
    client_secret_file: Path | None = None
    ca_file: Path | None = None
    """PEM file of the CA of the issuer's certificate; None: the system's CAs."""
    username_claim: str = "sub"
    username_prefix: str = ""
    groups_claim: str = ""
    groups_prefix: str = ""
    required_claims: tuple[tuple[str, str], ...] = ()
    """Claims that an ID token must have, with their values: `(("hd", "example.com"),)`."""
    algorithms: tuple[Algorithm, ...] = ("RS256",)

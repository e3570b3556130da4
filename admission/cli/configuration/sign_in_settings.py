"""Settings of sign-in outside of the cluster, named as kube-apiserver's flags: `oidc`, `requestHeader` for a proxy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from admission.api.auth.oidc.client import Algorithm, OidcClient
from admission.cli.configuration.policy_settings import Duration
from admission.model.base import Model

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_SHORTEST_SESSION: Final = 60.0
_LONGEST_SESSION: Final = 8 * 3600.0
"""Seconds."""


def _issuer(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment or parts.username is not None:
        raise ValueError(f'"{text}" is not an https URL without query and fragment')
    return text


def _own(text: str) -> str:
    parts = urlsplit(text)
    safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    if not safe or not parts.hostname or parts.path not in ("", "/") or parts.query or parts.fragment or "@" in text:
        raise ValueError(f'"{text}" is not https://HOST[:PORT] (http only on loopback)')
    return text.rstrip("/")


def _session(seconds: float) -> float:
    if not _SHORTEST_SESSION <= seconds <= _LONGEST_SESSION:
        raise ValueError("must be from 1m to 8h")
    return seconds


class OidcSettings(Model):
    """The issuer at which users sign in to the dashboard, and how its claims map to user names and groups."""

    issuer_url: Annotated[str, AfterValidator(_issuer)]
    """URL of the issuer, exactly as in its `iss` claim, such as https://accounts.example.com. Required."""
    client_id: Annotated[str, Field(min_length=1)]
    """Sluice's client ID at the issuer; ID tokens must have it as audience. Required."""
    client_secret_file: Path | None = None
    """File that contains only the client secret. Default: none, for a public client."""
    url: Annotated[str, AfterValidator(_own)]
    """https://HOST[:PORT] of the dashboard for browsers; register URL/ui/sign-in as redirect URI. Required."""
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    """Scopes to request from the issuer; some issuers need an additional one for groups.

    Default: openid, profile, email."""
    ca_file: Path | None = None
    """PEM file with the CA of the issuer's certificate. Default: the CAs of the system."""
    username_claim: str = "sub"
    """Claim with the user name; `email` is accepted only if the issuer has verified it. Default: sub."""
    username_prefix: str | None = None
    """Prefix of user names; "-" for none. Default: the issuer's URL and "#", but no prefix for the claim `email`."""
    groups_claim: str = ""
    """Claim that contains the user's groups. Default: users have no groups."""
    groups_prefix: str = ""
    """Prefix of groups. Default: none."""
    required_claims: dict[str, str] = Field(default_factory=dict)
    """Claims that an ID token must contain, with their values."""
    signing_algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)] = ("RS256",)
    """Signing algorithms that are accepted for ID tokens. Default: RS256."""
    session_duration: Annotated[Duration, AfterValidator(_session)] = 3600.0
    """Duration of a session, from 1m to 8h; a change of groups takes effect at the next sign-in. Default: 1h."""

    def client(self) -> OidcClient:
        """Return the OpenID Connect client that these settings describe."""
        prefix = self.username_prefix
        if prefix is None:
            prefix = "" if self.username_claim == "email" else f"{self.issuer_url}#"
        return OidcClient(
            issuer=self.issuer_url,
            client_id=self.client_id,
            url=self.url,
            session_seconds=self.session_duration,
            scopes=tuple(dict.fromkeys(("openid", *self.scopes))),
            client_secret_file=self.client_secret_file,
            ca_file=self.ca_file,
            username_claim=self.username_claim,
            username_prefix="" if prefix == "-" else prefix,
            groups_claim=self.groups_claim,
            groups_prefix=self.groups_prefix,
            required_claims=tuple(self.required_claims.items()),
            algorithms=self.signing_algorithms,
        )


HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")]


class RequestHeaderSettings(Model):
    """The proxy in front of the API and the dashboard whose user headers are trusted."""

    client_ca_file: Path
    """PEM file with the CA of the proxy's client certificate. Required."""
    allowed_names: Annotated[tuple[str, ...], Field(min_length=1)]
    """Common names that the proxy's client certificate may have. Required."""
    username_headers: Annotated[tuple[HeaderName, ...], Field(min_length=1)] = ("X-Remote-User",)
    """Headers that may contain the user name; the first one present is used. Default: X-Remote-User."""
    group_headers: tuple[HeaderName, ...] = ("X-Remote-Group",)
    """Headers that contain groups, one group per header. Default: X-Remote-Group."""

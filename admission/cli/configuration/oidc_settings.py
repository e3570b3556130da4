"""The settings for signing in at an OpenID Connect issuer, named as kube-apiserver's `--oidc-*` flags are."""

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


def _issuer(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment or parts.username is not None:
        raise ValueError(f'"{text}" is no https URL without query and fragment')
    return text


def _own(text: str) -> str:
    parts = urlsplit(text)
    safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    if not safe or not parts.hostname or parts.path not in ("", "/") or parts.query or parts.fragment or "@" in text:
        raise ValueError(f'"{text}" is no https://HOST[:PORT] (http on loopback alone)')
    return text.rstrip("/")


def _session(seconds: float) -> float:
    if not _SHORTEST_SESSION <= seconds <= _LONGEST_SESSION:
        raise ValueError("must be from 1m to 8h")
    return seconds


class OidcSettings(Model):
    """At which issuer people can sign in to the dashboard, and who they are then."""

    issuer_url: Annotated[str, AfterValidator(_issuer)]
    """The issuer, exactly as it calls itself, such as https://accounts.example.com."""
    client_id: Annotated[str, Field(min_length=1)]
    """What Sluice is called there; ID tokens must be made for it."""
    client_secret_file: Path | None = None
    """A file with nothing but the client's secret; none for a public client."""
    url: Annotated[str, AfterValidator(_own)]
    """https://HOST[:PORT] where browsers have the dashboard; the issuer must know the redirect URI URL/ui/sign-in."""
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    """What is asked of the issuer; some have groups by a scope of their own."""
    ca_file: Path | None = None
    """PEM file of the authority of the issuer's certificate; without it one of the system's."""
    username_claim: str = "sub"
    """The claim that is the user name; an email counts if the issuer has verified it."""
    username_prefix: str | None = None
    """In front of user names; without it ISSUER# but for email, and with "-" none."""
    groups_claim: str = ""
    """The claim with the user's groups; without it there are none."""
    groups_prefix: str = ""
    """In front of groups."""
    required_claims: dict[str, str] = Field(default_factory=dict)
    """Claims that an ID token must have, with their values."""
    signing_algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)] = ("RS256",)
    """How ID tokens may be signed."""
    session_duration: Annotated[Duration, AfterValidator(_session)] = 3600.0
    """How long a session lasts, up to 8h; groups are those of its beginning."""

    def client(self) -> OidcClient:
        """What these settings come to."""
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

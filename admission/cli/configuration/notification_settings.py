"""The setting `notifications`: receivers that Subscriptions may name, and networks that requests may go to."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from admission.model.base import FieldFaultsError, Model, Name
from admission.notifications.receivers import Receiver, Receivers


def http_url(text: str) -> str:
    """Return `text` if it is a valid URL of a receiver.

    Raises ValueError; its message leaves the URL out, which may be a secret.
    """
    try:
        parts = urlsplit(text)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        fits, parts = False, urlsplit("")
    if not fits or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("is not a URL such as http://HOST:PORT or https://HOST/PATH")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ValueError("must have no user, password or fragment")
    return text


def _network(value: object) -> object:
    if isinstance(value, str):
        try:
            return ip_network(value)
        except ValueError as error:
            raise ValueError(f'"{value}" is not a network such as 10.0.0.0/8') from error
    return value


Network: TypeAlias = Annotated[IPv4Network | IPv6Network, BeforeValidator(_network)]


class ReceiverSettings(Model):
    """A receiver of notifications."""

    name: Name
    """Name by which Subscriptions refer to the receiver."""
    url: Annotated[str, AfterValidator(http_url)] | None = None
    """URL that notifications are sent to by POST."""
    url_file: Path | None = None
    """File that contains only the URL, instead of `url`; for URLs that are secrets, such as Slack's."""
    secret_file: Path | None = None
    """File that contains the secret with which requests are signed; required for the format CloudEvents."""
    format: Literal["CloudEvents", "Slack"] = "CloudEvents"
    """Body of the requests: CloudEvents (the default), or Slack: a message for Slack and compatible services."""
    namespaces: tuple[Name, ...] = ()
    """Namespaces whose Subscriptions may refer to the receiver; empty: all."""

    @model_validator(mode="after")
    def _has_url_and_secret(self) -> Self:
        faults = []
        if (self.url is None) == (self.url_file is None):
            faults.append(("url", "give either this or urlFile"))
        if self.format == "CloudEvents" and self.secret_file is None:
            faults.append(
                ("secretFile", "is missing: the receiver verifies by the signature that Sluice sent the request")
            )
        if faults:
            raise FieldFaultsError(faults)
        return self

    def receiver(self) -> Receiver:
        """Return the receiver that these settings describe."""
        return Receiver(
            self.name,
            url=self.url or "",
            url_file=self.url_file,
            secret_file=self.secret_file,
            format=self.format,
            namespaces=frozenset(self.namespaces),
        )


class NotificationSettings(Model):
    """Receivers of notifications; without any, no notification is sent."""

    receivers: Annotated[tuple[ReceiverSettings, ...], Field(max_length=1000)] = ()
    """Receivers that Subscriptions can refer to."""
    allowed_networks: Annotated[tuple[Network, ...], Field(max_length=100)] = ()
    """Networks other than the public internet that requests may go to, such as the cluster's Service network."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [one.name for one in self.receivers]
        for position, name in enumerate(names):
            if name in names[:position]:
                raise FieldFaultsError([(f"receivers[{position}].name", f'there is a receiver "{name}" already')])
        return self

    def allowed(self) -> Receivers:
        """Return the receivers and allowed networks that these settings describe."""
        return Receivers({one.name: one.receiver() for one in self.receivers}, self.allowed_networks)

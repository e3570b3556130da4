"""The settings that say who may be notified by Subscriptions, and where requests for that may go."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from admission.model.base import FieldFaultsError, Model, Name
from admission.notifications.receivers import Receiver, Receivers


def http_url(text: str) -> str:
    """The URL of a receiver. Raises ValueError, without the URL, which may be a secret."""
    try:
        parts = urlsplit(text)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        fits, parts = False, urlsplit("")
    if not fits or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("is no URL such as https://hooks.example.com/sluice")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ValueError("must have no user, password or fragment")
    return text


def _network(value: object) -> object:
    if isinstance(value, str):
        try:
            return ip_network(value)
        except ValueError as error:
            raise ValueError(f'"{value}" is no network such as 10.0.0.0/8') from error
    return value


Network: TypeAlias = Annotated[IPv4Network | IPv6Network, BeforeValidator(_network)]


class ReceiverSettings(Model):
    """Somebody who can be notified."""

    name: Name
    """What Subscriptions call it."""
    url: Annotated[str, AfterValidator(http_url)] | None = None
    """Where notifications are sent to by POST."""
    url_file: Path | None = None
    """A file with nothing but the URL, in place of it: Slack's URLs are secrets."""
    secret_file: Path | None = None
    """A file with the secret that requests are signed with; required for CloudEvents."""
    format: Literal["CloudEvents", "Slack"] = "CloudEvents"
    """What is sent: a CloudEvent, or a text for Slack and what understands the same."""
    namespaces: tuple[Name, ...] = ()
    """The namespaces whose Subscriptions may name it; empty: all."""

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> Self:
        faults = []
        if (self.url is None) == (self.url_file is None):
            faults.append(("url", "give either this or urlFile"))
        if self.format == "CloudEvents" and self.secret_file is None:
            faults.append(("secretFile", "is missing: the receiver knows by the signature that it was Sluice who sent"))
        if faults:
            raise FieldFaultsError(faults)
        return self

    def receiver(self) -> Receiver:
        """What these settings come to."""
        return Receiver(
            self.name,
            url=self.url or "",
            url_file=self.url_file,
            secret_file=self.secret_file,
            format=self.format,
            namespaces=frozenset(self.namespaces),
        )


class NotificationSettings(Model):
    """Who can be notified. Without receivers nobody is."""

    receivers: Annotated[tuple[ReceiverSettings, ...], Field(max_length=1000)] = ()
    """All whom Subscriptions can name."""
    allowed_networks: Annotated[tuple[Network, ...], Field(max_length=100)] = ()
    """Networks beside the public internet that requests may go to, such as those of Services in the cluster."""

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        names = [one.name for one in self.receivers]
        for position, name in enumerate(names):
            if name in names[:position]:
                raise FieldFaultsError([(f"receivers[{position}].name", f'there is a receiver "{name}" already')])
        return self

    def allowed(self) -> Receivers:
        """What these settings come to."""
        return Receivers({one.name: one.receiver() for one in self.receivers}, self.allowed_networks)

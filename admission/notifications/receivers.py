"""Receivers: where notifications may be sent to, as the admin has configured it."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from admission.model.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from ipaddress import IPv4Network, IPv6Network
    from pathlib import Path

    Network: TypeAlias = IPv4Network | IPv6Network

Format: TypeAlias = Literal["CloudEvents", "Slack"]

NOT_SERVED: Final = "nothing is sent"
"""How all reasons begin for which a Subscription is not served."""
_STANDARD_SECRET = "whsec_"  # noqa: S105  how the standard marks a secret that is written in base64


class DeliveryFailed(SluiceError):
    """A notification did not reach its receiver. The message holds no secret, so no URL."""

    def __init__(self, message: str, *, retry_after: float = 0.0) -> None:
        """`retry_after`: so many seconds the receiver wants to be left alone."""
        self.retry_after = retry_after
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Receiver:
    """Somebody who is notified by HTTP requests."""

    name: str
    url: str = ""
    url_file: Path | None = None
    """A file with nothing but the URL, if that is a secret itself, as Slack's are."""
    secret_file: Path | None = None
    """A file with the secret that requests are signed with; None: they are not signed."""
    format: Format = "CloudEvents"
    namespaces: frozenset[str] = frozenset()
    """Of the Subscriptions that may name it; empty: all."""

    def target(self) -> str:
        """The URL, read anew each time, so that it can be changed. Raises DeliveryFailed."""
        return self.url if self.url_file is None else self._read(self.url_file, "URL")

    def secret(self) -> bytes | None:
        """What to sign with; None: not at all. Read anew each time. Raises DeliveryFailed."""
        if self.secret_file is None:
            return None
        text = self._read(self.secret_file, "secret")
        if not text.startswith(_STANDARD_SECRET):
            return text.encode()
        try:
            return base64.b64decode(text.removeprefix(_STANDARD_SECRET), validate=True)
        except binascii.Error as error:
            raise DeliveryFailed(f"the secret of receiver {self.name} begins with whsec_, but is no base64") from error

    def _read(self, file: Path, what: str) -> str:
        try:
            text = file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise DeliveryFailed(f"the file with the {what} of receiver {self.name} cannot be read") from error
        if not text:
            raise DeliveryFailed(f"the file with the {what} of receiver {self.name} is empty")
        return text


@dataclass(frozen=True, slots=True)
class Receivers:
    """All that the admin allows."""

    by_name: Mapping[str, Receiver]
    networks: tuple[Network, ...] = ()
    """Addresses in these are allowed, though they are not of the public internet."""

    def fault(self, name: str, namespace: str) -> str:
        """Why nothing is sent to a receiver for a namespace, as a sentence; empty: something is."""
        receiver = self.by_name.get(name)
        if receiver is not None and (not receiver.namespaces or namespace in receiver.namespaces):
            return ""
        return (
            f'{NOT_SERVED}: there is no receiver "{name}" for namespace {namespace}; an admin adds it to '
            "notifications.receivers in the configuration"
        )

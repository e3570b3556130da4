"""Receivers of notifications, as configured by the admin."""

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
"""Prefix of all messages about Subscriptions that are not served. Stored and compared with stored ones: keep it."""
_STANDARD_SECRET = "whsec_"  # noqa: S105  prefix of a base64 secret in the Standard Webhooks specification


class DeliveryFailed(SluiceError):
    """A notification was not delivered. The message contains no secrets, so no URL either."""

    def __init__(self, message: str, *, retry_after: float = 0.0) -> None:
        """`retry_after`: seconds of the receiver's Retry-After header; 0: none."""
        self.retry_after = retry_after
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Receiver:
    """An HTTP endpoint that receives notifications."""

    name: str
    url: str = ""
    url_file: Path | None = None
    """File that contains the URL, if that is a secret itself, as Slack's are; used in place of `url`."""
    secret_file: Path | None = None
    """File with the secret for signatures; None: requests are not signed."""
    format: Format = "CloudEvents"
    namespaces: frozenset[str] = frozenset()
    """Namespaces whose Subscriptions may use the receiver; empty: all."""

    def read_url(self) -> str:
        """Return the URL; its file is read each time, so that it can be changed. Raises DeliveryFailed."""
        return self.url if self.url_file is None else self._read(self.url_file, "URL")

    def read_secret(self) -> bytes | None:
        """Return the secret for signatures, or None; its file is read each time. Raises DeliveryFailed."""
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
    """All configured receivers, and the networks that they may be in."""

    by_name: Mapping[str, Receiver]
    networks: tuple[Network, ...] = ()
    """Networks that are allowed beside public addresses."""

    def fault(self, name: str, namespace: str) -> str:
        """Return a message why a receiver cannot be used by a namespace; empty: it can."""
        receiver = self.by_name.get(name)
        if receiver is not None and (not receiver.namespaces or namespace in receiver.namespaces):
            return ""
        return (
            f'{NOT_SERVED}: there is no receiver "{name}" for namespace {namespace}; an admin adds it to '
            "notifications.receivers in the configuration"
        )

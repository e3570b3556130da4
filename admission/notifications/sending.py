"""Delivery of a notification as an HTTP request: to public addresses only, no redirects or proxies, with a timeout."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from importlib.metadata import version
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import aiohttp

from admission.model.text import clean
from admission.notifications.bodies import encoded, signed
from admission.notifications.receivers import DeliveryFailed
from admission.serving.outgoing import client_connector, client_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from ipaddress import IPv4Network

    from admission.notifications.receivers import Receiver, Receivers
    from admission.store.records import Document

    Network: TypeAlias = IPv4Network | IPv6Network

_TIMEOUT: Final = 10.0
"""Timeout of a request, in seconds."""
_MAX_RETRY_AFTER: Final = 3600.0
"""Upper bound in seconds for a receiver's Retry-After."""


class NotificationSender:
    """Sends notifications, with its own HTTP session."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    @classmethod
    @asynccontextmanager
    async def open(cls, receivers: Callable[[], Receivers]) -> AsyncIterator[NotificationSender]:
        """Open a sender for the duration of the block; `receivers` returns the current configuration."""
        # Connections are not kept alive, so that the address of each request is checked against this configuration.
        sockets = checked_socket_factory(lambda: receivers().networks)
        connector = client_connector(client_context(), keepalive=0, socket_factory=sockets)
        async with aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=_TIMEOUT),
            trust_env=False,
            headers={"User-Agent": f"sluice/{version('sluice')}"},
        ) as http:
            yield cls(http)

    async def send(self, receiver: Receiver, event: Document, *, at: float) -> None:
        """Send a CloudEvent, signed with the time `at` (Unix time, s). Raises DeliveryFailed."""
        body, content_type = encoded(event, receiver.format)
        # Files may be on a network file system, which must not block the event loop.
        url, secret = await asyncio.to_thread(lambda: (receiver.read_url(), receiver.read_secret()))
        headers = {"Content-Type": content_type}
        if secret is not None:
            headers |= signed(body, secret, id_=event["id"], at=at)
        try:
            async with self._http.post(url, data=body, headers=headers, allow_redirects=False) as response:
                status, after = response.status, response.headers.get("Retry-After", "")
        except TimeoutError as error:
            raise DeliveryFailed(f"receiver {receiver.name} did not answer within {_TIMEOUT:g} s") from error
        except aiohttp.ClientConnectorError as error:  # a ValueError, too, for an untrusted certificate
            raise DeliveryFailed(f"receiver {receiver.name} cannot be reached: {_cause(error)}") from error
        except (aiohttp.InvalidURL, ValueError) as error:  # whose text is left out: it has the URL
            raise DeliveryFailed(f"the URL of receiver {receiver.name} is invalid") from error
        except (aiohttp.ClientError, OSError) as error:
            raise DeliveryFailed(f"receiver {receiver.name} cannot be reached: {_cause(error)}") from error
        if 300 <= status < 400:
            text = f"receiver {receiver.name} answers {status}, a redirect, which is not followed: configure its target"
            raise DeliveryFailed(text)
        if not 200 <= status < 300:
            raise DeliveryFailed(f"receiver {receiver.name} answers {status}", retry_after=_seconds(after))


def _cause(error: BaseException) -> str:
    """Return the cause of a failed request, without the URL."""
    known: BaseException | None = error
    while known is not None:
        if isinstance(known, ForbiddenAddress):
            return str(known)
        known = known.__cause__ or known.__context__
    if isinstance(error, aiohttp.ClientConnectorError):
        return clean(str(error.os_error), longest=200)
    return type(error).__name__


def _seconds(text: str) -> float:
    """Return the seconds of a Retry-After header; 0 for a date, which is not supported."""
    return min(float(text), _MAX_RETRY_AFTER) if text.isascii() and text.isdecimal() and len(text) < 8 else 0.0


_NAT64: Final = IPv6Network("64:ff9b::/96")
"""Prefix of IPv4 addresses embedded in IPv6 addresses, for networks without IPv4 (RFC 6052)."""


class ForbiddenAddress(OSError):
    """A connection to a forbidden address was attempted."""


def is_allowed(text: str, networks: Sequence[Network]) -> bool:
    """Whether notifications may be sent to this IP address; `networks` are allowed beside public addresses."""
    address = ip_address(text.partition("%")[0])
    target = _ipv4_of(address)
    if any(each.version == network.version and each in network for each in (address, target) for network in networks):
        return True
    return target.is_global and not target.is_multicast and not target.is_reserved


def _ipv4_of(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address that is embedded in an IPv6 address, else the address itself."""
    if not isinstance(address, IPv6Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo[1] if address.teredo is not None else None
    return address.ipv4_mapped or address.sixtofour or teredo or address


def checked_socket_factory(networks: Callable[[], Sequence[Network]]) -> Callable[[Any], socket.socket]:
    """Return a socket factory for aiohttp that raises ForbiddenAddress for a forbidden address.

    `networks` is called for each socket, because the configuration can be reloaded.
    """

    def make(info: Any) -> socket.socket:
        family, kind, protocol, _, address = info
        if not is_allowed(address[0], networks()):
            raise ForbiddenAddress(
                f"{address[0]} is not a public address; if notifications may be sent there, "
                "add its network to notifications.allowedNetworks in the configuration"
            )
        return socket.socket(family, kind, protocol)

    return make

"""Protection against server-side request forgery: notifications go to public IP addresses and allowed networks only.

The check is made when a connection is opened, for the address of that connection. So a host name that resolves to
another address after a check (DNS rebinding) cannot get around it.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from ipaddress import IPv4Network

    Network: TypeAlias = IPv4Network | IPv6Network

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

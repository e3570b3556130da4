"""Which IP addresses notifications may be sent to: those of the public internet, and networks that the admin allows.

It is judged when a connection is made, for the very address that it is made to. A name that resolves to one address
when it is looked at and to another one a moment later gains nothing.
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
"""IPv4 addresses as a network without IPv4 writes them (RFC 6052)."""


class ForbiddenAddress(OSError):
    """A connection to an address that is not allowed."""


def is_allowed(text: str, networks: Sequence[Network]) -> bool:
    """Whether a request may go to this IP address."""
    address = ip_address(text.partition("%")[0])
    meant = _meant(address)
    if any(each.version == network.version and each in network for each in (address, meant) for network in networks):
        return True
    return meant.is_global and not meant.is_multicast and not meant.is_reserved


def _meant(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an IPv6 address stands for, if so."""
    if not isinstance(address, IPv6Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo[1] if address.teredo is not None else None
    return address.ipv4_mapped or address.sixtofour or teredo or address


def checked_sockets(networks: Callable[[], Sequence[Network]]) -> Callable[[Any], socket.socket]:
    """What makes the sockets of a client: none to a forbidden address. `networks` are asked for each time."""

    def make(info: Any) -> socket.socket:
        family, kind, protocol, _, address = info
        if not is_allowed(address[0], networks()):
            raise ForbiddenAddress(
                f"{address[0]} is not an address of the public internet; if notifications may go there, "
                "add its network to notifications.allowedNetworks in the configuration"
            )
        return socket.socket(family, kind, protocol)

    return make

"""Addresses in settings: HOST:PORT, and the host to listen on for a URL."""

from __future__ import annotations

from ipaddress import ip_address


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of an address: `127.0.0.1:8080`, `[::1]:8080`, or `:8080` for all interfaces.

    Raises ValueError if it has another form.
    """
    host, colon, port = address.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in host and host == bare):
        raise ValueError(f'"{address}" is not an address; expected HOST:PORT such as 127.0.0.1:8080')
    return bare or "0.0.0.0", int(port)  # noqa: S104  an omitted host means all interfaces


def listening_host(host: str) -> str:
    """Return the host to listen on so that a URL with this host leads here: itself on loopback, else all interfaces."""
    try:
        address = ip_address(host)
    except ValueError:
        return host if host == "localhost" else "0.0.0.0"  # noqa: S104  the URL names another host
    if address.is_loopback:
        return host
    return "0.0.0.0" if address.version == 4 else "::"  # noqa: S104

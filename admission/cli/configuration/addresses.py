"""Parsing of HOST:PORT addresses in settings."""

from __future__ import annotations


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of an address: `127.0.0.1:8080`, `[::1]:8080`, or `:8080` for all interfaces.

    Raises ValueError if it has another form.
    """
    host, colon, port = address.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in host and host == bare):
        raise ValueError(f'"{address}" is not an address; expected HOST:PORT such as 127.0.0.1:8080')
    return bare or "0.0.0.0", int(port)  # noqa: S104  an omitted host means all interfaces

"""Addresses as settings give them."""

from __future__ import annotations


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:8080`, `[::1]:8080` or `:8080` (all interfaces). Raises ValueError."""
    host, colon, port = address.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in host and host == bare):
        raise ValueError(f'"{address}" is no address; expected HOST:PORT such as 127.0.0.1:8080')
    return bare or "0.0.0.0", int(port)  # noqa: S104  asked for by leaving the host out
